"""Merge the run that was given: the first step of `merge`, `open` and `query`.

`open` and `query` also take a trace that Perfetto reads.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tracekit.cli.inputs.echo import echo_drawn
from tracekit.cli.inputs.options import progress_on_stderr, terminal_format
from tracekit.cli.inputs.run_choice import RunChoice
from tracekit.errors import UsageError
from tracekit.read.files.inflate import beginning_of

if TYPE_CHECKING:
    from tracekit.loading.options import StepSelection, SummaryOptions
    from tracekit.model.notes import Note
    from tracekit.model.run import Run
    from tracekit.render.merged.derived_tracks import SliceFilter
    from tracekit.render.merged.merge import Merged


_SUFFIXES = (".pftrace", ".pftrace.gz", ".perfetto-trace")
_MERGED_HEAD_BYTES = 1 << 10  # in these bytes a merged trace has its key


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
    from tracekit.read.cache.cache_dir import DecodedSpool
    from tracekit.render.merged.merge import merge
    from tracekit.render.output import scratch_folder
    from tracekit.report.report import analyze

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
    from tracekit.model.texts import count_text
    from tracekit.render.console import note_lines, statement, write

    lines: list[object] = []
    for other in run.other_runs:
        name = f"run {other.run_id or 'without an id'}, attempt {other.attempt}"
        text = f"left out: {name}, of {count_text(other.ranks, 'rank')}; --run and --attempt choose"
        lines.append(statement("info", text))
    everything = shlex.join(["tracekit", "analyze", *run.arguments, "--json"])
    lines += note_lines(defects, all_told_by=everything)
    return write(lines, **terminal_format(sys.stderr))


@dataclass(frozen=True, kw_only=True)
class PerfettoTrace:
    """A trace to show or query.

    Attributes:
        stream: an open regular file.
        name: the file's name, or one made from the run's folder.
        is_merged: the trace was merged just now, and is deleted when the stream is closed.
        page_arguments: arguments for the address of Perfetto's UI that tell it what to show first.
    """

    stream: BinaryIO
    name: str
    is_merged: bool
    page_arguments: Mapping[str, str]


@contextmanager
def perfetto_trace(choice: RunChoice, steps: StepSelection | None = None) -> Iterator[PerfettoTrace]:
    """Yield the trace that was given, or the given run merged. Raises what `load` and `merge` raise."""
    if len(choice.paths) == 1 and _is_ready(Path(choice.paths[0])):
        path = Path(choice.paths[0])
        if (choice.run, choice.attempt, choice.ranks, steps) != (None, None, None, None):
            raise UsageError(
                f"{path}: a merged trace: runs, ranks and steps cannot be selected in it", hint="name the run instead"
            )
        if choice.anonymize:
            hint = "merge the run with --anonymize, and name that file without it"
            raise UsageError(f"{path}: the names in a merged trace cannot be replaced", hint=hint)
        with path.open("rb") as stream:
            yield PerfettoTrace(
                stream=stream, name=path.name, is_merged=False, page_arguments=_arguments_of_ready(path)
            )
        return
    from tracekit.loading.options import StepSelection, SummaryOptions
    from tracekit.render.output import temporary_folder

    with temporary_folder(Path(tempfile.gettempdir(), "run.pftrace")) as folder:
        merged = merged_run(choice, folder / "run.pftrace", options=SummaryOptions(steps=steps or StepSelection()))
        stream = merged.path.open("rb")
    # The file is unlinked, so that nothing is left behind however this ends; the open stream still reads it.
    with stream:
        name = f"{Path(choice.shown_paths[0]).name or 'run'}.pftrace"
        arguments = merged.opening_view.page_arguments
        yield PerfettoTrace(stream=stream, name=name, is_merged=True, page_arguments=arguments)


def _arguments_of_ready(path: Path) -> Mapping[str, str]:
    """Return the arguments for a trace in a file: none, unless tracekit merged it."""
    from tracekit.render.merged.opening_view import view_in

    return view_in(beginning_of(path)).page_arguments if _is_merged(path) else {}


def _is_ready(path: Path) -> bool:
    """Return whether Perfetto reads the file unchanged, by its name. JSON is a run, unless tracekit merged it."""
    if not os.path.isfile(path):  # noqa: PTH113 - false, too, where a folder above it may not be entered
        return False
    return path.name.endswith(_SUFFIXES) or _is_merged(path)


def _is_merged(path: Path) -> bool:
    from tracekit.model.metadata import MERGED_KEY

    with suppress(OSError, zlib.error):  # whoever reads the file says what is wrong
        return MERGED_KEY.encode() in beginning_of(path)[:_MERGED_HEAD_BYTES]
    return False
