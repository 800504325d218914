"""Write all ranks of a run into one trace with one clock.

The trace starts with the page "run": findings, steps, the critical path, counters over all ranks. A page for each rank
follows, such as "rank 3 · host · dp1 tp0", in the order of the mesh. In Perfetto's format it is under that of the run.
Each of them has three groups of tracks:

    analysis     what tracekit adds (category "tracekit"): steps, phases, compute, communication, exposed communication
                 and copies, idle, bubble, actions, buckets, collectives by group, point to point, waits, late, clock
                 uncertainty, and memory by device where it was recorded
    device       a track for each stream
    host         a track for each thread, then whatever else the trace holds

Compute, communication, the exposed parts and idle show complete steps only, so that their sums equal the report's
numbers. Every slice of the input is there once, on the track it was recorded on. It has all its arguments but the
numbers with which the profiler counts its own records. Times are on the run's clock.

A page is written here, or comes from a file that a worker wrote. All are joined in one file.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import BinaryIO, cast

from tracekit.errors import OutputError, UsageError
from tracekit.loading.options import SummaryOptions
from tracekit.loading.workers import LOST, Progress, map_ranks
from tracekit.model.run import Run
from tracekit.read.cache.cache_dir import DecodedSpool
from tracekit.render.merged.derived_tracks import SliceFilter
from tracekit.render.merged.formats import FORMATS
from tracekit.render.merged.opening_view import ANY_RUN, OpeningView, opening_view
from tracekit.render.merged.plan import RankPlan, RunPlan, plan_of
from tracekit.render.merged.rank_page import PageCounts, write_rank
from tracekit.render.merged.run_page import write_run
from tracekit.render.output import move_to_end, new_file, scratch_folder
from tracekit.render.slices import Sink, TraceFormat
from tracekit.report.report import Report

_VIEW_KEY = "tracekit_opening_view"
_FEW_EVENTS = 200_000  # with fewer, starting workers costs more time than they save


@dataclass(frozen=True, kw_only=True)
class Merged:
    """A merged trace that was written.

    Attributes:
        path: The file.
        ranks: Number of ranks.
        slices: Number of slices from the input, without those that tracekit adds.
        filtered: Number of slices that an option or a limit leaves out, by its name.
        left_out: Number of events that are neither slices nor records of memory, by phase in Chrome's format: s and f
            flows (arrows are drawn anew), C counters, i instants, M metadata, and so on.
        categories: Categories of the input's slices.
        size_bytes: Size of the file.
        opening_view: What Perfetto's UI should show first; without a report `ANY_RUN`.
    """

    path: Path
    ranks: int
    slices: int
    filtered: dict[str, int]
    left_out: dict[str, int]
    categories: frozenset[str]
    size_bytes: int
    opening_view: OpeningView


def merge(
    run: Run,
    output: str | os.PathLike[str],
    *,
    report: Report | None = None,
    options: SummaryOptions | None = None,
    shown: SliceFilter | None = None,
    force: bool = False,
    jobs: int | None = 1,
    spool: DecodedSpool | None = None,
    progress: Progress | None = None,
    form: str = "perfetto",
) -> Merged:
    """Write the merged trace of `run` to `output`, gzipped when its name ends in `.gz`.

    report: of the same run; adds its findings and the critical path.
    options: those that the run was loaded with.
    shown: which slices of the input to write.
    jobs, spool: as for `load`; traces that `load` has decoded are taken from the spool.
    form: the name of one of `FORMATS`.

    Raises OutputError if the file cannot be written or the worker of a rank dies, InputError if a file of the run has
    become unreadable, UsageError if no event has one of the categories that were asked for.
    """
    output, shown = Path(output), shown or SliceFilter()
    options = replace(options or SummaryOptions(), pseudonyms=run.pseudonyms, step_anchor=run.step_anchor)
    plan = plan_of(run)
    view = ANY_RUN if report is None else opening_view(plan, report)
    trace_format = FORMATS[form].begin(plan.first_ns, lambda base_ns: {_VIEW_KEY: view.later(-base_ns).note})
    with ExitStack() as stack:
        stream = stack.enter_context(new_file(output, force=force))
        packed: BinaryIO = stream
        if output.suffix == ".gz":
            # Without a name: that of the scratch file, which is another each time, would be written.
            packed = cast(
                BinaryIO, stack.enter_context(gzip.GzipFile("", "wb", compresslevel=3, fileobj=stream, mtime=0))
            )
        document = Document(packed, trace_format)
        document.begin_page()
        write_run(trace_format.writer(document, len(plan.ranks)), plan, report, options.steps)
        pages = _Pages(form=trace_format, options=options, shown=shown, spool=spool)
        jobs = 1 if jobs is None and sum(s.event_count for s in run.ranks) < _FEW_EVENTS else jobs
        if 1 in (jobs, len(plan.ranks)):
            calls = [(pages, rank, document) for rank in plan.ranks]
            written = map_ranks(_write_here, calls, jobs=1, progress=progress)
        else:
            folder = stack.enter_context(scratch_folder(output, force=force))
            page_files = [folder / str(rank.rank_index) for rank in plan.ranks]
            written = map_ranks(
                _write_page_file, list(zip(repeat(pages), plan.ranks, page_files)), jobs=jobs, progress=progress
            )
            _check_none_is_lost(written, plan, output)
            for page_file in page_files:
                document.add_page(page_file)
        document.end()
        counts = sum((page for page in written if page is not LOST), start=PageCounts())
        _check_categories(shown, counts)
    return Merged(
        path=output,
        ranks=len(run.ranks),
        slices=counts.slices,
        filtered=dict(counts.filtered),
        left_out=dict(sorted(counts.other_phases.items())),
        categories=counts.categories,
        size_bytes=output.stat().st_size,
        opening_view=view.later(-trace_format.base_ns),
    )


def _check_none_is_lost(written: Sequence[object], plan: RunPlan, output: Path) -> None:
    if LOST in written:
        rank = plan.ranks[written.index(LOST)].summary.rank
        hint = "it may have run out of memory: try --jobs 1, or leave it out with --ranks"
        raise OutputError(f"{output}: rank {rank}: the worker that wrote it died, twice", hint=hint)


def _check_categories(shown: SliceFilter, counts: PageCounts) -> None:
    if shown.categories is not None and not shown.categories & counts.categories:
        there = ", ".join(sorted(counts.categories - {""})) or "none"
        asked = ",".join(sorted(shown.categories))
        raise UsageError(f"--categories {asked}: no event is of that category", hint=f"there are {there}")


@dataclass(frozen=True, kw_only=True)
class _Pages:
    """What it takes to write any rank's page, in any process."""

    form: TraceFormat
    options: SummaryOptions
    shown: SliceFilter
    spool: DecodedSpool | None

    def write(self, rank: RankPlan, stream: Sink) -> PageCounts:
        return write_rank(self.form.writer(stream, rank.rank_index), rank, self.options, self.shown, self.spool)


def _write_here(pages: _Pages, rank: RankPlan, document: Document) -> PageCounts:
    document.begin_page()
    return pages.write(rank, document)


def _write_page_file(pages: _Pages, rank: RankPlan, page_file: Path) -> PageCounts:
    """Write the page to the file `part`, in a worker."""
    with page_file.open("wb") as stream:
        return pages.write(rank, stream)


class Document:
    """A merged trace that is being written. What is written to it belongs to the page that was begun last.

    A page may be empty. The trace is complete after `end`.
    """

    def __init__(self, stream: BinaryIO, form: TraceFormat) -> None:
        self._stream = stream
        self._form = form
        self._is_empty = True
        self._between = b""
        stream.write(form.head)

    def begin_page(self) -> None:
        self._between = b"" if self._is_empty else self._form.separator

    def write(self, content: bytes | memoryview, /) -> None:
        if content:
            self._stream.write(self._between)
            self._stream.write(content)
            self._is_empty, self._between = False, b""

    def add_page(self, page_file: Path) -> None:
        """Append the page in the file `part`, and remove the file."""
        self.begin_page()
        if page_file.stat().st_size:
            self._stream.write(self._between)
            self._is_empty = False
        move_to_end(page_file, self._stream)

    def end(self) -> None:
        self._stream.write(self._form.tail)
