"""What ranks did within single steps: how far each lane covers short bins of time, phases, and the longest operations.

Summaries do not keep this. The files of the ranks are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tracekit.errors import InputError
from tracekit.loading.options import SummaryOptions
from tracekit.loading.rank_reader import SMALL_RUN_BYTES, size_bytes_of
from tracekit.loading.recording import Recording, recording_of
from tracekit.loading.workers import LOST, Progress, map_ranks
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, EventTable, Float64, Int64
from tracekit.model.names.pseudonyms import Pseudonyms
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary
from tracekit.rank.communication_rules import CommunicationRule
from tracekit.rank.kernel_names import function_of_kernel
from tracekit.rank.lanes import Lanes
from tracekit.rank.phases import AUTOGRAD_NODE_PREFIX, STEP_PHASES, PhaseTimeline, outermost
from tracekit.rank.steps import StepSearch
from tracekit.read.decode.decoder import decode
from tracekit.read.files.storage import parse_path
from tracekit.stats.grouped import grouped

Lane = Literal["compute", "communication", "copy"]
LANES: tuple[Lane, ...] = ("compute", "communication", "copy")


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """The time of one step of one rank that is looked at.

    Attributes:
        rank: global rank.
        step: number of the step.
        start_ns: of the rank's window, on the rank's clock.
        end_ns: its end.
        origin_ns: where the first bin begins, on the rank's clock.
        length_ns: of all bins together.
        bins: how many there are.
    """

    rank: int
    step: int
    start_ns: int
    end_ns: int
    origin_ns: int
    length_ns: int
    bins: int


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A kernel, an operator or a communication.

    Attributes:
        lane: index into `LANES`.
        start_ns: since `StepTime.origin_ns`, as `end_ns`.
    """

    name: str
    lane: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, kw_only=True, eq=False)
class StepLanes:
    """What a rank did in one step.

    Attributes:
        covered: float64 [lanes, bins], which share of each bin each of `LANES` covers.
        phases: start, end and name of each phase, since `StepTime.origin_ns`, in order of time.
        operations: the longest ones, in order of time.
    """

    time: StepTime
    covered: Float64
    phases: tuple[tuple[int, int, str], ...]
    operations: tuple[Operation, ...]


def read_step_lanes(
    run: Run,
    times: Iterable[StepTime],
    *,
    most_operations: int,
    options: SummaryOptions | None = None,
    jobs: int | None = 1,
    progress: Progress | None = None,
) -> list[StepLanes]:
    """Return what the ranks did in these steps, in the order of the ranks of the run.

    `options` are those that the run was loaded with; `jobs` and `progress` are as for `load`. A step that is
    in none of its rank's files any more has no result. Raises InputError when a file has become unreadable or its
    worker dies.
    """
    options = options or SummaryOptions()
    by_rank = grouped((time.rank, time) for time in times)
    chosen: list[RankSummary] = [summary for summary in run.ranks if summary.rank in by_rank]
    files = [tuple(parse_path(file) for file in summary.files) for summary in chosen]
    if jobs is None and size_bytes_of(files) < SMALL_RUN_BYTES:
        jobs = 1
    calls = [
        (
            s.files,
            options.rules,
            replace(options.search, anchor=run.step_anchor, first=s.first_step),
            by_rank[s.rank],
            most_operations,
            run.pseudonyms,
        )
        for s in chosen
    ]
    found: list[StepLanes] = []
    outcomes = map_ranks(_of_files, calls, jobs=jobs, progress=progress)
    for summary, lanes in zip(chosen, outcomes, strict=True):
        if lanes is LOST:
            raise InputError(f"rank {summary.rank}: the worker that read it died, twice", hint="try --jobs 1")
        found += lanes
    return found


def _of_files(
    files: Iterable[str],
    rules: tuple[CommunicationRule, ...],
    search: StepSearch,
    times: Sequence[StepTime],
    most_operations: int,
    pseudonyms: Pseudonyms | None,
) -> list[StepLanes]:
    """Return the lanes of one rank. Runs in a worker."""
    found: list[StepLanes] = []
    for file in files:
        recording = recording_of(decode(parse_path(file), namer=pseudonyms), rules, search)
        windows = recording.lanes.windows
        recorded = set(zip(windows.step.tolist(), windows.start_ns.tolist(), strict=True))
        here = [time for time in times if (time.step, time.start_ns) in recorded]
        found += [_in_step(recording, time, most_operations) for time in here]
    return found


def _in_step(recording: Recording, time: StepTime, most_operations: int) -> StepLanes:
    lanes, events = recording.lanes, recording.trace.events
    edges_ns = time.origin_ns + np.arange(time.bins + 1) * time.length_ns // time.bins
    width_ns = np.maximum(np.diff(edges_ns), 1)
    of_lanes = (lanes.compute, lanes.communication, lanes.copy)
    in_window = [lane.clip(time.start_ns, time.end_ns) for lane in of_lanes]
    covered = np.stack([np.diff(lane.covered_before(edges_ns)) / width_ns for lane in in_window])
    return StepLanes(
        time=time,
        covered=covered,
        phases=tuple(_phases(recording.phases, time)),
        operations=tuple(_longest(events, lanes, time, most_operations)),
    )


def _phases(timeline: PhaseTimeline, time: StepTime) -> Iterable[tuple[int, int, str]]:
    """Yield the phases of the host in the window; neighbours that are the same are one."""
    inside = timeline.change_ns[(timeline.change_ns > time.start_ns) & (timeline.change_ns < time.end_ns)]
    edges_ns = np.concatenate(([time.start_ns], inside, [time.end_ns])).astype(np.int64)
    phase = timeline.step_phase_at(edges_ns[:-1])
    first = np.flatnonzero(np.append(True, phase[1:] != phase[:-1]))
    ends_ns = np.append(edges_ns[first[1:]], edges_ns[-1])
    for start_ns, end_ns, number in zip(edges_ns[first].tolist(), ends_ns.tolist(), phase[first].tolist(), strict=True):
        if end_ns > start_ns:
            yield start_ns - time.origin_ns, end_ns - time.origin_ns, STEP_PHASES[number]


def _longest(events: EventTable, lanes: Lanes, time: StepTime, most: int) -> list[Operation]:
    """Return the longest operations of the step, cut at its window."""
    found: list[Operation] = []
    for lane, (start_ns, end_ns, name_of) in enumerate(_operations(events, lanes)):
        start_ns, end_ns = np.maximum(start_ns, time.start_ns), np.minimum(end_ns, time.end_ns)
        rows = np.argsort(start_ns - end_ns, kind="stable")[:most]
        found += [
            Operation(
                name=name_of(row),
                lane=lane,
                start_ns=int(start_ns[row]) - time.origin_ns,
                end_ns=int(end_ns[row]) - time.origin_ns,
            )
            for row in rows[end_ns[rows] > start_ns[rows]].tolist()
        ]
    longest = sorted(found, key=lambda operation: operation.start_ns - operation.end_ns)[:most]
    return sorted(longest, key=lambda operation: operation.start_ns)


def _operations(events: EventTable, lanes: Lanes) -> Iterator[tuple[Int64, Int64, Callable[[int], str]]]:
    """Yield for each of `LANES` starts and ends, int64 [n], and what names the operation of a row.

    On a CPU rank those operators compute that are in no other.
    """
    device, communication = lanes.device_events, lanes.communication_events
    if lanes.device == "gpu":
        compute, copies = lanes.compute_rows, device.row[~device.is_kernel & ~lanes.communicates]
    else:
        compute, copies = _outermost(events, lanes.compute_rows), np.empty(0, dtype=np.int64)

    def label(row: int) -> str:
        group = communication.group[row]
        name = None if group == ABSENT else communication.groups[group].label
        kind = KINDS[communication.kind[row]]
        return kind if name is None else f"{kind} ({name})"

    def computes(row: int) -> str:
        name = events.strings[events.name[compute[row]]]
        return function_of_kernel(name) if lanes.device == "gpu" else name.removeprefix(AUTOGRAD_NODE_PREFIX)

    yield events.start_ns[compute], events.end_ns[compute], computes
    yield communication.start_ns, communication.end_ns, label
    yield events.start_ns[copies], events.end_ns[copies], lambda row: events.strings[events.name[copies[row]]]


def _outermost(events: EventTable, rows: Int64) -> Int64:
    """Return those of the events that are in no other one on their track."""
    on_tracks = [outermost(events, rows[events.track[rows] == track]) for track in events.tracks_of(rows).tolist()]
    return np.concatenate([np.empty(0, dtype=np.int64), *on_tracks])
