"""All ranks on one page with one clock: a run to a merged Perfetto trace.

Comes in: a `Run`, whose files are decoded once more. Goes out: one file. Each rank is a process named
"rank 3 · host · dp1 tp0"; under it:

    lanes        steps, compute, communication, exposed communication, collectives: made by tracekit (category
                 "tracekit"); the lanes hold the complete steps, so that their sums are the report's numbers
    device       a track a stream
    threads      host threads, then whatever else the trace holds

Every slice of the input is there once, on the track it was recorded on; times are on the run's clock.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from tracekit.analysis.align import on_run_clock
from tracekit.analysis.device_links import DEVICE_CATEGORIES
from tracekit.analysis.lanes import Lanes, build_lanes
from tracekit.analysis.summarize import SummaryOptions
from tracekit.analysis.workers import LOST, Progress, map_ranks
from tracekit.errors import OutputError
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, EventTable, Int64, Track
from tracekit.model.intervals import Intervals
from tracekit.model.run import ClockModel, Run
from tracekit.model.summary import RankSummary
from tracekit.read.kineto import decode
from tracekit.read.storage import located
from tracekit.render.output import new_file
from tracekit.render.perfetto.writer import PerfettoTrack, RankTraceWriter, write_header

__all__ = ["CATEGORY", "Merged", "merge"]

CATEGORY = "tracekit"
"""Category of the slices that tracekit adds; all others are the input's."""

_FEW_EVENTS = 200_000  # below this, starting workers costs more than they save
# The UI sorts threads by id. Ids must be unique, differ from the processes' (1, 2, ...), and fit into 31 bits.
_FIRST_THREAD_ID = 1 << 20
_THREADS_A_RANK = 1 << 11


@dataclass(frozen=True, kw_only=True)
class Merged:
    """What was written; `slices` counts those of the input, not those that tracekit adds. `left_out`: events that are
    no slices, by their phase in the Chrome format (s and f flows, C counters, i instants, M metadata, ...).
    """

    path: Path
    ranks: int
    slices: int
    left_out: dict[str, int]
    size_bytes: int


def merge(
    run: Run,
    output: str | os.PathLike[str],
    *,
    options: SummaryOptions | None = None,
    force: bool = False,
    jobs: int | None = 1,
    progress: Progress | None = None,
) -> Merged:
    """Write the merged trace of `run` to `output`, gzipped when its name ends in `.gz`; `jobs` is that of `load`.

    Raises OutputError when it cannot be written, or a rank's worker dies, InputError when a file of the run has become
    unreadable.
    """
    output = Path(output)
    clocks = _from_zero(run)
    with ExitStack() as stack:
        stream = stack.enter_context(new_file(output, force=force))
        packed: BinaryIO = stream
        if output.suffix == ".gz":
            packed = cast(
                BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=3, mtime=0))
            )
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=output.parent, prefix=".tracekit-merge-")))
        calls = [
            (summary, clock, position, folder / str(position), options or SummaryOptions())
            for position, (summary, clock) in enumerate(zip(run.ranks, clocks, strict=True))
        ]
        jobs = 1 if jobs is None and sum(s.event_count for s in run.ranks) < _FEW_EVENTS else jobs
        outcomes = map_ranks(_merge_rank, calls, jobs=jobs, progress=progress)
        if LOST in outcomes:
            rank = run.ranks[outcomes.index(LOST)].rank
            message = f"{output}: rank {rank}: the worker that wrote it died, twice"
            raise OutputError(message, hint="it may have run out of memory: try --jobs 1, or leave it out with --ranks")
        written = [outcome for outcome in outcomes if outcome is not LOST]
        start_ns = min((step.start_ns for summary in run.ranks for step in summary.steps), default=0)
        write_header(packed, start_ns=start_ns)
        for call in calls:
            with call[3].open("rb") as part:
                shutil.copyfileobj(part, packed, 1 << 20)
    left_out: Counter[str] = Counter()
    for _, phases in written:
        left_out.update(phases)
    return Merged(
        path=output,
        ranks=len(run.ranks),
        slices=sum(slices for slices, _ in written),
        left_out=dict(sorted(left_out.items())),
        size_bytes=output.stat().st_size,
    )


def _from_zero(run: Run) -> list[ClockModel]:
    """The run's clocks, moved together when a trace begins before zero, where Perfetto knows no time."""
    starts_ns = [
        int(on_run_clock(np.array([summary.first_event_ns]), clock)[0])
        for summary, clock in zip(run.ranks, run.clocks, strict=True)
        if summary.first_event_ns is not None
    ]
    below_ns = min(0, *starts_ns) if starts_ns else 0
    return [replace(clock, offset_ns=clock.offset_ns + below_ns) for clock in run.clocks]


def _merge_rank(
    summary: RankSummary, clock: ClockModel, position: int, part: Path, options: SummaryOptions
) -> tuple[int, dict[str, int]]:
    """Write one rank's packets to `part`, in a worker; returns the number of input slices written, and of all else."""
    with part.open("wb") as stream:
        page = _RankPage(RankTraceWriter(stream, rank=position), summary, clock, position)
        for path in summary.files:
            trace = decode(located(path))
            lanes = build_lanes(trace, options.rules, whole=options.steps.whole)
            page.write_lanes(lanes, options)
            page.write_input(trace.events, lanes)
    return page.slices, dict(page.left_out)


class _RankPage:
    """The process of one rank and its tracks, each made once, whatever number of windows is written on them."""

    def __init__(self, writer: RankTraceWriter, summary: RankSummary, clock: ClockModel, position: int) -> None:
        self._writer = writer
        self._clock = clock
        self._process = writer.add_process(_process_name(summary), pid=position + 1, order=position)
        self._lanes = writer.add_track("lanes", parent=self._process, order=0)
        self._device = writer.add_track("device", parent=self._process, order=1) if summary.device == "gpu" else None
        self._next_thread_id = _FIRST_THREAD_ID + _THREADS_A_RANK * position
        self._tracks: dict[Track | str, PerfettoTrack] = {}
        self.slices = 0
        self.left_out: Counter[str] = Counter()

    def write_lanes(self, lanes: Lanes, options: SummaryOptions) -> None:
        windows = lanes.windows
        counted = windows.complete & np.array([options.steps.whole or int(k) in options.steps for k in windows.step])
        inside = Intervals.union_of(windows.start_ns[counted], windows.end_ns[counted])
        steps = [
            f"step {k}{'' if done else ' (incomplete)'}" for k, done in zip(windows.step, windows.complete, strict=True)
        ]
        self._write_made("steps", windows.start_ns, windows.end_ns, steps)
        communication = lanes.communication & inside
        self._write_lane("compute", lanes.compute & inside)
        self._write_lane("communication", communication)
        self._write_lane("exposed communication", communication - lanes.compute)
        found = lanes.communication_events
        groups = [group.parallelism or group.description for group in found.groups]
        collectives = [
            KINDS[kind] if group == ABSENT else f"{KINDS[kind]} · {groups[group]}"
            for kind, group in zip(found.kind.tolist(), found.group.tolist(), strict=True)
        ]
        self._write_made("collectives", found.start_ns, found.end_ns, collectives)

    def write_input(self, events: EventTable, lanes: Lanes) -> None:
        """Every slice of the trace, on a track for each (pid, tid); the step's thread is the first."""
        start_ns = on_run_clock(events.start_ns, self._clock)
        duration_ns = on_run_clock(events.end_ns, self._clock) - start_ns
        on_device = events.tracks_of(events.in_category(*DEVICE_CATEGORIES, "gpu_user_annotation"))
        order = np.argsort(events.track, kind="stable")
        edges = np.searchsorted(events.track[order], np.arange(len(events.tracks) + 1))
        by_interest = sorted(
            range(len(events.tracks)),
            key=lambda index: (index != lanes.windows.thread, index not in lanes.threads, index),
        )
        for index in by_interest:
            rows = order[edges[index] : edges[index + 1]]
            if len(rows):
                self._writer.write_slices(
                    self._track(events.tracks[index], index in on_device),
                    start_ns[rows],
                    duration_ns[rows],
                    events.name[rows],
                    events.strings,
                    category_ids=events.category[rows],
                )
        self.slices += len(events)
        self.left_out.update(events.other_phases)

    def _track(self, source: Track, on_device: bool) -> PerfettoTrack:
        if source not in self._tracks:
            if on_device and self._device is not None:
                name = f"GPU {source.pid} stream {source.tid}"
                track = self._writer.add_track(name, parent=self._device, order=len(self._tracks))
            else:
                name = source.thread_name or f"{source.pid} {source.tid}".strip()
                track = self._writer.add_thread(self._process, name, tid=self._next_thread_id)
                self._next_thread_id += 1
            self._tracks[source] = track
        return self._tracks[source]

    def _write_lane(self, name: str, intervals: Intervals) -> None:
        self._write_made(name, intervals.start_ns, intervals.end_ns, [name] * len(intervals))

    def _write_made(self, name: str, start_ns: Int64, end_ns: Int64, labels: Sequence[str]) -> None:
        """Slices of tracekit's own. Starts and ends are each put on the run's clock: what met still meets."""
        if name not in self._tracks:
            self._tracks[name] = self._writer.add_track(name, parent=self._lanes, order=len(self._tracks))
        strings = [CATEGORY, *sorted(set(labels))]
        index = {label: i for i, label in enumerate(strings)}
        start_ns, end_ns = on_run_clock(start_ns, self._clock), on_run_clock(end_ns, self._clock)
        self._writer.write_slices(
            self._tracks[name],
            start_ns,
            end_ns - start_ns,
            np.array([index[label] for label in labels], dtype=np.int32),
            strings,
            category_ids=np.zeros(len(labels), dtype=np.int32),
        )


def _process_name(summary: RankSummary) -> str:
    mesh = summary.mesh
    where = " ".join(f"{name}{at}" for name, at in zip(mesh.names, mesh.coordinate, strict=True)) if mesh else ""
    return " · ".join(part for part in (f"rank {summary.rank}", summary.host, where) if part)
