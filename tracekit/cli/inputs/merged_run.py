"""Merge the run that was given: the first step of `merge`, `open` and `query`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.cli.inputs.echo import echo_drawn
from tracekit.cli.inputs.options import progress_on_stderr, terminal_format
from tracekit.cli.inputs.run_choice import RunChoice

if TYPE_CHECKING:
    from tracekit.analysis.per_rank.options import SummaryOptions
    from tracekit.model.notes import Note
    from tracekit.model.run import Run
    from tracekit.render.merged.input_slices import SliceFilter
    from tracekit.render.merged.merge import Merged

__all__ = ["merged_run"]


def merged_run(
    choice: RunChoice,
    output: Path,
    *,
    options: SummaryOptions | None = None,
    shown: SliceFilter | None = None,
    form: str = "perfetto",
    force: bool = False,
) -> Merged:
    """Write the merged trace, with the findings of an analysis, to `output`.

    Defects of the run are printed on stderr. Raises what `load` and `merge` raise.
    """
    from tracekit.analysis.report import analyze
    from tracekit.read.cache.spool import DecodedSpool
    from tracekit.render.merged.merge import merge
    from tracekit.render.output import scratch_folder

    with scratch_folder(output, force=force) as folder:
        spool = DecodedSpool(folder=folder)
        options = choice.with_rules(options)
        run = choice.load(options, spool)
        report = analyze(run)
        defects = [note for note in report.run.notes if note.is_defect]
        if run.other_runs or defects:
            echo_drawn(_remarks(run, defects), err=True)
        with progress_on_stderr("writing ranks") as progress:
            return merge(
                run,
                output,
                report=report,
                options=options,
                shown=shown,
                form=form,
                force=force,
                jobs=choice.jobs,
                spool=spool,
                progress=progress,
            )


def _remarks(run: Run, defects: Sequence[Note]) -> str:
    """Which other runs are left out, and what is wrong with this one."""
    from tracekit.model.quantities import count_text
    from tracekit.render.console import note_lines, statement, write

    lines: list[object] = []
    for other in run.other_runs:
        name = f"run {other.run_id or 'without an id'}, attempt {other.attempt}"
        text = f"left out: {name}, of {count_text(other.ranks, 'rank')}; --run and --attempt choose"
        lines.append(statement("info", text))
    everything = shlex.join(["tracekit", "analyze", *run.arguments, "--json"])
    lines += note_lines(defects, all_told_by=everything)
    return write(lines, **terminal_format(sys.stderr))
