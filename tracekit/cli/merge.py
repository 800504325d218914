"""`tracekit merge`: all ranks in one trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from tracekit.cli.merging import merged_run
from tracekit.cli.options import DURATION, SECTIONS, STEPS, progress_on_stderr
from tracekit.cli.run_choice import RunChoice, run_options

if TYPE_CHECKING:
    from tracekit.analysis.summarize import StepSelection

_SUFFIXES = {
    "perfetto": (".pftrace", ".perfetto-trace", ".pftrace.gz", ".perfetto-trace.gz"),
    "chrome": (".json", ".json.gz"),
    "manifest": (".zip",),
}
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
@click.option("--format", "form", type=click.Choice([*_SUFFIXES]), default="perfetto", show_default=True,
              help="Perfetto's own; Chrome's JSON; the files as they are, with offsets.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE",
              help="The trace to write (run.pftrace, run.json.gz, run.zip); .gz packs it.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def merge(
    choice: RunChoice,
    steps: StepSelection | None,
    categories: tuple[str, ...] | None,
    min_duration_ns: int | None,
    form: Literal["perfetto", "chrome", "manifest"],
    output: Path | None,
    force: bool,
) -> None:
    """Write one trace of all ranks, on one clock.

    What tracekit adds to it (lanes, collectives, waits, findings, ...) is there whatever is filtered. The format
    `manifest` is an archive of the untouched files alone, with a perfetto_manifest that aligns them (Perfetto 58 or
    newer).
    """
    from tracekit.errors import UsageError

    output = output or Path({"perfetto": "run.pftrace", "chrome": "run.json.gz", "manifest": "run.zip"}[form])
    if not output.name.endswith(_SUFFIXES[form]):
        hint = f"end it in {' or '.join(_SUFFIXES[form])}, or choose another --format"
        raise UsageError(f"-o {output}: not a name for this format ({form})", hint=hint)
    if form == "manifest":
        if (steps, categories, min_duration_ns) != (None, None, None):
            raise UsageError("--format manifest leaves the files as they are", hint="choose another format to filter")
        _write_manifest(choice, output, force=force)
    else:
        _write_pages(choice, steps, categories, min_duration_ns, form, output, force=force)


def _write_pages(
    choice: RunChoice,
    steps: StepSelection | None,
    categories: tuple[str, ...] | None,
    min_duration_ns: int | None,
    form: Literal["perfetto", "chrome"],
    output: Path,
    *,
    force: bool,
) -> None:
    from tracekit.analysis.summarize import StepSelection, SummaryOptions
    from tracekit.render.merged.input_slices import SliceFilter
    from tracekit.render.quantities import file_size
    from tracekit.render.safe_text import safe_text

    shown = SliceFilter(
        categories=None if categories is None else frozenset(categories),
        min_duration_ns=min_duration_ns or 0,
    )
    merged = merged_run(
        choice, output, options=SummaryOptions(steps=steps or StepSelection()), shown=shown, form=form, force=force
    )
    if unknown := sorted(set(categories or ()) - merged.categories):
        there = ", ".join(sorted(merged.categories - {""}))
        click.echo(safe_text(f"no event is of category {', '.join(unknown)}; there are {there}"), err=True)
    click.echo(f"{output}: {merged.ranks} ranks, {merged.slices:,} slices, {file_size(merged.size_bytes)}")
    if merged.filtered:
        counts = ", ".join(f"{count:,} by {option}" for option, count in merged.filtered.items())
        click.echo(f"slices left out: {counts}")
    if merged.left_out:
        counts = ", ".join(f"{count:,} {_PHASES.get(phase, phase)}" for phase, count in merged.left_out.items())
        click.echo(f"not slices: {counts} (arrows are drawn anew)")
    click.echo(f"Next: tracekit open {output}" if form == "perfetto" else "Next: open it in chrome://tracing")


def _write_manifest(choice: RunChoice, output: Path, *, force: bool) -> None:
    from tracekit.render.perfetto.manifest import write_manifest
    from tracekit.render.quantities import file_size
    from tracekit.render.safe_text import safe_text

    found = choice.load()
    with progress_on_stderr("reading ranks") as progress:
        archive = write_manifest(found, output, force=force, jobs=choice.jobs, progress=progress)
    for file in archive.left_out:
        click.echo(safe_text(f"{Path(file.source).name}: cut off, which Perfetto refuses; left out"), err=True)
    left_ns = max(file.left_ns for file in archive.files)
    click.echo(f"{output}: {len(archive.files)} files with their offsets, {file_size(archive.size_bytes)}")
    if left_ns:
        click.echo(f"up to {left_ns / 1000:,.1f} us are left where clocks drift: an offset a file cannot say more")
    click.echo("Next: open it at https://ui.perfetto.dev (it stays in your browser)")
