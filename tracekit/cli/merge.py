"""`tracekit merge`: all ranks in one trace."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.inputs.echo import echo
from tracekit.cli.inputs.merged_run import merged_run
from tracekit.cli.inputs.options import DURATION, SECTIONS, STEPS, Command
from tracekit.cli.inputs.run_choice import RunChoice, run_options
from tracekit.render.merged.formats import FORMATS

if TYPE_CHECKING:
    from tracekit.loading.options import StepSelection

# Phases of the Chrome format that are not slices. Metadata and arrows are written anew; the others cannot be shown.
_WRITTEN_ANEW = "Mstf"
_NOT_SHOWN = {"C": "counter values", "i": "instants", "I": "instants"}


@click.command(cls=Command)
@run_options()
@click.option("--steps", type=STEPS, metavar="10:20", help="Only slices that overlap these steps.")
@click.option("--categories", type=SECTIONS, metavar="kernel,cpu_op", help="Only events of these categories.")
@click.option("--min-dur", "min_duration_ns", type=DURATION, metavar="10us", help="Only events at least this long.")
@click.option("--format", "form", type=click.Choice([*FORMATS]), default="perfetto", show_default=True,
              help="Chrome's is for other viewers than Perfetto.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE",
              help="The trace to write (run.pftrace, run.json.gz); .gz packs it.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def merge(
    choice: RunChoice,
    steps: StepSelection | None,
    categories: tuple[str, ...] | None,
    min_duration_ns: int | None,
    form: str,
    output: Path | None,
    force: bool,
) -> None:
    """Write one trace of all ranks, on one clock.

    Filters do not apply to what tracekit adds: lanes, collectives, waits, findings, ...
    """
    from tracekit.errors import UsageError
    from tracekit.loading.options import StepSelection, SummaryOptions
    from tracekit.model.texts import count_text, file_size
    from tracekit.render.merged.derived_tracks import SliceFilter

    suffixes, name = FORMATS[form].suffixes, FORMATS[form].default_name
    output = output or Path(name)
    if output.is_dir():
        raise UsageError(f"-o {output}: a folder", hint=f"name the file, too: -o {shlex.quote(str(output / name))}")
    if not output.name.endswith(suffixes):
        others = [other for other, each in FORMATS.items() if output.name.endswith(each.suffixes)]
        hint = f"end it in {' or '.join(suffixes[:2])}" + "".join(f", or give --format {each}" for each in others)
        raise UsageError(f"-o {output}: not a name for --format {form}", hint=hint)
    shown = SliceFilter(
        categories=None if categories is None else frozenset(categories),
        min_duration_ns=min_duration_ns or 0,
    )
    merged = merged_run(
        choice, output, options=SummaryOptions(steps=steps or StepSelection()), shown=shown, form=form, force=force
    )
    if unknown := sorted(set(categories or ()) - merged.categories):
        there = ", ".join(sorted(merged.categories - {""}))
        echo(f"--categories: no event is of {', '.join(unknown)}; there are {there}", err=True)
    what = f"{count_text(merged.ranks, 'rank')}, {count_text(merged.slices, 'slice')}"
    echo(f"{output}: {what}, {file_size(merged.size_bytes)}")
    left_out = ", ".join(f"{count:,} by {option}" for option, count in merged.filtered.items())
    echo(f"slices left out: {left_out or 'none; names and arrows are written anew'}")
    not_shown = Counter[str]()
    for phase, count in merged.left_out.items():
        if phase not in _WRITTEN_ANEW:
            not_shown[_NOT_SHOWN.get(phase, f"events of phase {phase}")] += count
    if not_shown:
        echo("not shown: " + ", ".join(f"{count:,} {name}" for name, count in not_shown.items()))
    following = shlex.join(["tracekit", "open", str(output)])
    viewer = FORMATS[form].viewer
    echo(f"Next: open it in {viewer}" if viewer else f"Next: {following}")
