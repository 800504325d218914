"""All ranks on one page with one clock: a run to a merged trace.

Comes in: a `Run`, whose files are decoded once more where they are in no spool. Goes out: one file. First on the page
is the process "run", then a process a rank, "rank 3 · host · dp1 tp0", in the order of the mesh; under it:

    analysis     what tracekit adds (category "tracekit"): steps, phases, compute, communication, exposed communication
                 and copies, idle, bubble, actions, buckets, collectives by group, point to point, waits, late, clock
                 uncertainty, memory by device where it was recorded. The parts of steps hold the complete steps, so
                 that their sums are the report's numbers
    device       a track a stream
    host         a track a thread, then whatever else the trace holds

Every slice of the input is there once, on the track it was recorded on, with all its arguments but the numbers by which
the profiler counts its records; times are on the run's clock.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import BinaryIO, Literal, cast

from tracekit.analysis.per_rank.summarize import SummaryOptions
from tracekit.analysis.pool.workers import LOST, Progress, map_ranks
from tracekit.analysis.report import Report
from tracekit.errors import OutputError, UsageError
from tracekit.model.run import Run
from tracekit.read.cache.spool import DecodedSpool
from tracekit.render.chrome import ChromeFormat
from tracekit.render.merged.document import Document
from tracekit.render.merged.input_slices import SliceFilter
from tracekit.render.merged.plan import RankPlan, RunPlan, plan_of
from tracekit.render.merged.rank_page import PageCounts, write_rank
from tracekit.render.merged.run_page import write_run
from tracekit.render.output import new_file, refuse_input, scratch_folder
from tracekit.render.perfetto import PerfettoFormat
from tracekit.render.trace.slices import Sink, TraceFormat

__all__ = ["Form", "Merged", "merge"]

Form = Literal["perfetto", "chrome"]

_BEFORE_ALL_NS = 10**9  # what tracekit adds may begin a little before the first event
_FEW_EVENTS = 200_000  # below this, starting workers costs more than they save


@dataclass(frozen=True, kw_only=True)
class Merged:
    """What was written; `slices` counts those of the input, not those that tracekit adds. `filtered`: slices that an
    option leaves out, by the option. `left_out`: events that are neither slices nor on the counters of memory, by their
    phase in the Chrome format (s and f flows, which are drawn anew; C counters, i instants, M metadata, ...).
    `categories`: of the input's slices.
    """

    path: Path
    ranks: int
    slices: int
    filtered: dict[str, int]
    left_out: dict[str, int]
    categories: frozenset[str]
    size_bytes: int


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
    form: Form = "perfetto",
) -> Merged:
    """Write the merged trace of `run` to `output`, gzipped when its name ends in `.gz`; `report`, of the same run, adds
    its findings and the critical path; `form`: Perfetto's own, or Chrome's JSON for other viewers. `options`: those
    that the run was loaded with; `shown`: which slices of the input to write. `jobs` is that of `load`, and so is
    `spool`, which decoded traces are taken from.

    Raises OutputError when it cannot be written, or a rank's worker dies, InputError when a file of the run has become
    unreadable, UsageError when there is none of the categories that were asked for.
    """
    output, options, shown = Path(output), options or SummaryOptions(), shown or SliceFilter()
    refuse_input(output, run)
    plan = plan_of(run)
    with ExitStack() as stack:
        stream = stack.enter_context(new_file(output, force=force))
        packed: BinaryIO = stream
        if output.suffix == ".gz":
            packed = cast(
                BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=3, mtime=0))
            )
        trace_format: TraceFormat = (
            PerfettoFormat(start_ns=plan.first_ns)
            if form == "perfetto"
            else ChromeFormat(base_ns=plan.first_ns - _BEFORE_ALL_NS)
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
            parts = [folder / str(rank.place) for rank in plan.ranks]
            written = map_ranks(_write_part, list(zip(repeat(pages), plan.ranks, parts)), jobs=jobs, progress=progress)
            _check_none_is_lost(written, plan, output)
            for part in parts:
                document.add_page(part)
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
    """How each rank's page is written, in whichever process."""

    form: TraceFormat
    options: SummaryOptions
    shown: SliceFilter
    spool: DecodedSpool | None

    def write(self, rank: RankPlan, stream: Sink) -> PageCounts:
        return write_rank(self.form.writer(stream, rank.place), rank, self.options, self.shown, self.spool)


def _write_here(pages: _Pages, rank: RankPlan, document: Document) -> PageCounts:
    document.begin_page()
    return pages.write(rank, document)


def _write_part(pages: _Pages, rank: RankPlan, part: Path) -> PageCounts:
    """To a file of its own, in a worker."""
    with part.open("wb") as stream:
        return pages.write(rank, stream)
