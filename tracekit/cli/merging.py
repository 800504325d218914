"""A run that was typed, merged: what `merge`, `open` and `query` do first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.cli.options import progress_on_stderr
from tracekit.cli.run_choice import RunChoice

if TYPE_CHECKING:
    from tracekit.analysis.summarize import SummaryOptions
    from tracekit.render.merged.input_slices import SliceFilter
    from tracekit.render.merged.merge import Form, Merged

__all__ = ["merged_run"]


def merged_run(
    choice: RunChoice,
    output: Path,
    *,
    options: SummaryOptions | None = None,
    shown: SliceFilter | None = None,
    form: Form = "perfetto",
    force: bool = False,
) -> Merged:
    """Write it to `output`, with what an analysis finds; defects of the run are told on stderr. Raises what `load` and
    `merge` do."""
    from tracekit.analysis.report import analyze
    from tracekit.read.shelf import Shelf
    from tracekit.render.merged.merge import merge
    from tracekit.render.output import scratch_folder
    from tracekit.render.safe_text import safe_text

    with scratch_folder(output, force=force) as folder:
        shelf = Shelf(folder=folder)
        found = choice.load(options, shelf)
        for other in found.other_runs:
            told = (
                f"left out: run {other.run_id or 'without an id'}, attempt {other.attempt}, {other.ranks} of its ranks"
            )
            click.echo(safe_text(f"{told}; --run and --attempt choose"), err=True)
        for note in found.notes:
            if note.is_defect:
                click.echo(safe_text(note.text), err=True)
        with progress_on_stderr("writing ranks") as progress:
            return merge(
                found,
                output,
                report=analyze(found),
                options=options,
                shown=shown,
                form=form,
                force=force,
                jobs=choice.jobs,
                shelf=shelf,
                progress=progress,
            )
