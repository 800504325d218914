"""`tracekit merge`: all ranks in one Perfetto trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.options import DURATION, SECTIONS, STEPS, progress_on_stderr
from tracekit.cli.run_choice import RunChoice, run_options

if TYPE_CHECKING:
    from tracekit.analysis.summarize import StepSelection

_SUFFIXES = (".pftrace", ".perfetto-trace")
_PHASES = {
    "s": "flow starts",
    "t": "flow steps",
    "f": "flow ends",
    "C": "counter values",
    "i": "instants",
    "I": "instants",
    "M": "names of processes and threads",
}


@click.command()
@run_options
@click.option("--steps", type=STEPS, metavar="10:20", help="Only what has a part in these steps.")
@click.option("--categories", type=SECTIONS, metavar="kernel,cpu_op", help="Only events of these categories.")
@click.option("--min-dur", "min_duration_ns", type=DURATION, metavar="10us", help="Only events this long.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("run.pftrace"), show_default=True,
              metavar="FILE", help="The trace to write; .gz packs it.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def merge(
    choice: RunChoice,
    steps: StepSelection | None,
    categories: tuple[str, ...] | None,
    min_duration_ns: int | None,
    output: Path,
    force: bool,
) -> None:
    """Write one Perfetto trace of all ranks, on one clock.

    What tracekit adds to it (steps, lanes, collectives, waits, findings, ...) is there whatever is chosen.
    """
    from tracekit.analysis.report import analyze
    from tracekit.analysis.summarize import StepSelection, SummaryOptions
    from tracekit.errors import UsageError
    from tracekit.read.shelf import Shelf
    from tracekit.render.console import file_size
    from tracekit.render.merged.input_slices import SliceFilter
    from tracekit.render.merged.merge import merge as merge_run
    from tracekit.render.output import scratch_folder
    from tracekit.render.safe_text import safe_text

    if not output.name.removesuffix(".gz").endswith(_SUFFIXES):
        hint = "the trace is in Perfetto's own format: name it run.pftrace or run.pftrace.gz"
        raise UsageError(f"-o {output}: not a name for a Perfetto trace", hint=hint)
    chosen = steps or StepSelection()
    options = SummaryOptions(steps=chosen)
    shown = SliceFilter(
        categories=None if categories is None else frozenset(categories),
        min_duration_ns=min_duration_ns or 0,
        steps=chosen,
    )
    with scratch_folder(output, force=force) as folder:
        shelf = Shelf(folder=folder)
        found = choice.load(options, shelf)
        with progress_on_stderr("writing ranks") as progress:
            merged = merge_run(
                found,
                output,
                report=analyze(found),
                options=options,
                shown=shown,
                force=force,
                jobs=choice.jobs,
                shelf=shelf,
                progress=progress,
            )
    for note in found.notes:
        if note.is_defect:
            click.echo(safe_text(note.text), err=True)
    click.echo(f"{output}: {merged.ranks} ranks, {merged.slices:,} slices, {file_size(merged.size_bytes)}")
    if merged.filtered:
        counts = ", ".join(f"{count:,} by {option}" for option, count in merged.filtered.items())
        click.echo(f"slices left out: {counts}")
    if merged.left_out:
        counts = ", ".join(f"{count:,} {_PHASES.get(phase, phase)}" for phase, count in merged.left_out.items())
        click.echo(f"not slices: {counts} (arrows are drawn anew)")
    click.echo("Next: open it at https://ui.perfetto.dev (it stays in your browser)")
