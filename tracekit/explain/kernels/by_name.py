"""Which kernels and operators take the most time over all ranks.

A rank keeps sums by name, of those that take the most time. They are part of every analysis, so they are cheap: about
30 ns of CPU time for a device event, and of operators only a limited number is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.communication import KINDS
from tracekit.model.events import EventTable, Float64, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.spans import LABEL_PREFIX
from tracekit.model.summary import Part
from tracekit.model.table import Column, Display, Table
from tracekit.rank.communication_rules import COMPUTE
from tracekit.rank.lanes import Lanes, complete_steps
from tracekit.rank.phases import outermost_first
from tracekit.rank.recorded_steps import RecordedSteps

MOST_SHOWN = 50
"""How many there are at most, by each of total, self and exposed time of all ranks."""

COPY = "copy"
MOST_OPERATORS = 10_000
"""About so many operators are looked at: those of whole steps, at least one, evenly spread over the recording."""

DEVICE_KINDS = (COMPUTE, COPY, *KINDS)
"""What a device event may count as."""

_MEET_NONE = 4  # times as many events as intervals: it pays to find the events that meet no interval

_Columns = tuple[Int64, Int64, Int64, Int64]
"""Key (see `_sums`), total, self and exposed time of each event, int64 [n] each."""

_SUMS = (
    Column("count", "float", "", "Mean number a step."),
    Column("total_ns", "float", "ns", "Mean time a step, with what it calls."),
    Column("self_ns", "float", "ns", "Mean time a step without what it calls."),
)
_RANKS = (
    Column("ranks", "int", "", "Ranks on which it is among those with the most time; the means are over these."),
    Column("worst_rank", "int", "", "The rank with the most total time in it."),
    Column("worst_total_ns", "float", "ns", "Its time a step."),
)
_CELLS = "name | count | total_ns | self_ns | exposed_ns | {worst_rank}: {worst_total_ns}"
KERNELS = Table(
    "kernels",
    (
        Column("name", "str", "", "As recorded."),
        Column("kind", "str", "", "compute, copy, or the kind of communication: all_reduce, send, ..."),
        *_SUMS,
        Column(
            "exposed_ns",
            "float",
            "ns",
            "The part of compute while nothing communicates, of communication while nothing computes, of copies while "
            "neither does.",
        ),
        *_RANKS,
    ),
    Display(
        "Kernels with the most total time (ms a step)",
        _CELLS,
        bars="exposed_ns | hidden={total_ns-exposed_ns}",
        most=8,
        sort="total_ns",
    ),
)
OPERATORS = Table(
    "operators",
    (
        Column("name", "str", "", "As recorded, on the threads of the step and of autograd."),
        *_SUMS,
        Column("exposed_ns", "float", "ns", "Self time in which the device idles; on a CPU: nothing communicates."),
        *_RANKS,
    ),
    Display(
        "Operators with the most self time (ms a step)",
        _CELLS,
        bars="exposed_ns | hidden={self_ns-exposed_ns}",
        most=8,
        sort="self_ns",
    ),
)

MOST_OF_RANK = 50
"""How many names are kept of a rank, by each of total, self and exposed time: with them all, thousands of ranks would
take much memory.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class OperationSums(Columnar):
    """n names of kernels or operators, each with its sums over some steps of one rank.

    Attributes:
        name: object [n], as recorded.
        kind: object [n], text: compute, copy or a kind of communication; "" for operators.
        count: int64 [n].
        total_ns: int64 [n], with what an operator calls.
        self_ns: int64 [n], without it.
        exposed_ns: int64 [n]. Of compute: while nothing communicates. Of communication: while nothing computes. Of a
            copy: while neither does. Of an operator: the self time in which the device is idle, or, on a CPU rank, in
            which nothing communicates.
    """

    name: np.ndarray
    kind: np.ndarray
    count: Int64
    total_ns: Int64
    self_ns: Int64
    exposed_ns: Int64


@dataclass(frozen=True, kw_only=True)
class OperationTimes:
    """Sums by name.

    Attributes:
        steps: how many complete steps the sums are over.
    """

    steps: int = 0
    sums: OperationSums = field(default_factory=OperationSums.empty)


def _merged(windows: Sequence[OperationTimes]) -> OperationTimes:
    sums = OperationSums.concatenate([window.sums for window in windows])
    numbers: dict[tuple[str, str], int] = {}
    pairs = zip(sums.name.tolist(), sums.kind.tolist(), strict=True)
    which = np.array([numbers.setdefault(pair, len(numbers)) for pair in pairs], dtype=np.int64)
    amounts = {name: np.zeros(len(numbers), dtype=np.int64) for name in ("count", "total_ns", "self_ns", "exposed_ns")}
    for name, column in amounts.items():
        np.add.at(column, which, getattr(sums, name))
    names, kinds = (np.array([pair[i] for pair in numbers], dtype=object) for i in (0, 1))
    merged = OperationSums(name=names, kind=kinds, **amounts)
    return OperationTimes(
        steps=sum(window.steps for window in windows), sums=merged.rows(longest(merged, MOST_OF_RANK))
    )


KERNEL_TIMES = Part(name="kernel_times", type=OperationTimes, empty=OperationTimes, merge=_merged)


OPERATOR_TIMES = Part(name="operator_times", type=OperationTimes, empty=OperationTimes, merge=_merged)


def kernel_times(recorded: RecordedSteps) -> OperationTimes:
    """Return the sums of the kernels and copies that begin in the complete steps; nothing for a CPU rank."""
    lanes, events = recorded.lanes, recorded.trace.events
    device = lanes.device_events
    steps = complete_steps(lanes, recorded.steps)
    count = int(steps.windows.sum())
    if lanes.device == "cpu" or not count:
        return OperationTimes()
    kind = device_kinds(lanes)
    row, start_ns = device.row, events.start_ns[device.row]  # in order of time
    inside = rows_in(start_ns, steps.time)
    charged_ns = np.zeros(len(kind), dtype=np.int64)
    charged_ns[lanes.communicates] = steps.exposed_ns
    row, kind, start_ns, charged_ns = row[inside], kind[inside], start_ns[inside], charged_ns[inside]
    duration_ns = events.duration_ns[row]
    exposed_ns = charged_ns + _exposed_ns(lanes, kind, start_ns, start_ns + duration_ns)
    key = (events.name[row].astype(np.int64) + 1) * len(DEVICE_KINDS) + kind
    sums = _sums(events, (key, duration_ns, duration_ns, exposed_ns), kinds=len(DEVICE_KINDS))
    return OperationTimes(steps=count, sums=sums)


def operator_times(recorded: RecordedSteps) -> OperationTimes:
    """Return the sums of the operators on the threads of the step and of autograd, over some of the complete steps.

    Spans that the capture writes are no operators.
    """
    lanes, events = recorded.lanes, recorded.trace.events
    operator = events.in_category("cpu_op")
    rows_of = [np.flatnonzero(operator & events.on_tracks(np.array([thread]))) for thread in lanes.threads.tolist()]
    chosen = chosen_steps(recorded, sum(map(len, rows_of)), most=MOST_OPERATORS)
    if not len(chosen):
        return OperationTimes()
    begin_ns = lanes.windows.host_start_ns
    until_ns = np.append(begin_ns[1:], lanes.windows.host_end_ns)
    windows = Intervals.union_of(begin_ns[chosen], until_ns[chosen])
    shown = lanes.idle if lanes.device == "gpu" else lanes.communication
    is_operator = np.array([not text.startswith(LABEL_PREFIX) for text in (*events.strings, "")])  # last: no name
    columns: list[_Columns] = []
    for rows in rows_of:
        start_ns = events.start_ns[rows]
        if (start_ns[1:] < start_ns[:-1]).any():  # in most files the rows of a thread are in order
            order = np.argsort(start_ns, kind="stable")
            rows, start_ns = rows[order], start_ns[order]
        rows = rows[rows_in(start_ns, windows)]
        rows = _each_once_outermost_first(events, rows[is_operator[events.name[rows]]])
        if len(rows):
            columns.append(_operator_columns(events, rows, shown, is_exposed=lanes.device == "gpu"))
    if not columns:
        return OperationTimes(steps=len(chosen))
    key, total_ns, self_ns, exposed_ns = (np.concatenate(column) for column in zip(*columns, strict=True))
    return OperationTimes(steps=len(chosen), sums=_sums(events, (key, total_ns, self_ns, exposed_ns), kinds=1))


def rows_over_ranks(by_rank: Sequence[tuple[int, OperationTimes]]) -> list[dict[str, object]]:
    """Return a row for each name and kind."""
    by_rank = [(rank, times) for rank, times in by_rank if times.steps and len(times.sums)]
    if not by_rank:
        return []
    numbers: dict[tuple[str, str], int] = {}
    which = np.array(
        [
            numbers.setdefault(pair, len(numbers))
            for _, times in by_rank
            for pair in zip(times.sums.name.tolist(), times.sums.kind.tolist(), strict=True)
        ],
        dtype=np.int64,
    )
    lengths = [len(times.sums) for _, times in by_rank]
    rank = np.repeat([rank for rank, _ in by_rank], lengths)
    steps = np.repeat([times.steps for _, times in by_rank], lengths)

    def per_step(column: str) -> Float64:
        sums: Int64 = np.concatenate([getattr(times.sums, column) for _, times in by_rank])
        return np.asarray(sums / steps)

    count, total_ns, self_ns, exposed_ns = map(per_step, ("count", "total_ns", "self_ns", "exposed_ns"))
    ranks = np.bincount(which)
    sums = [np.bincount(which, weights=column) for column in (count, total_ns, self_ns, exposed_ns)]
    worst_first = np.lexsort((rank, -total_ns, which))
    worst = worst_first[np.searchsorted(which[worst_first], np.arange(len(numbers)))]
    names = list(numbers)
    return [
        {
            "name": names[i][0],
            "kind": names[i][1],
            "count": sums[0][i] / ranks[i],
            "total_ns": sums[1][i] / ranks[i],
            "self_ns": sums[2][i] / ranks[i],
            "exposed_ns": sums[3][i] / ranks[i],
            "ranks": ranks[i],
            "worst_rank": rank[worst[i]],
            "worst_total_ns": total_ns[worst[i]],
        }
        for i in longest_of(sums[1:], MOST_SHOWN).tolist()
    ]


def parents(start_ns: Int64, end_ns: Int64) -> Int64:
    """Return the position of the innermost span around each of n, or -1; int64 [n].

    The spans are properly nested, in order of their start, and of equal starts the longest comes first. The innermost
    one around a span is the last one before it that ends later. All spans look for theirs at a time: whoever is at one
    that has ended goes on to where that one is.
    """
    found = np.arange(-1, len(start_ns) - 1)
    seeking = np.flatnonzero(end_ns[:-1] <= start_ns[1:]) + 1
    while len(seeking):
        candidate = found[found[seeking]]
        found[seeking] = candidate
        seeking = seeking[(candidate >= 0) & (end_ns[candidate] <= start_ns[seeking])]
    return found


def device_kinds(lanes: Lanes) -> Int64:
    """Return what each device event counts as, an index into `DEVICE_KINDS`, int64 [m]."""
    kind = np.where(lanes.device_events.is_kernel, 0, 1)
    kind[lanes.communicates] = lanes.communication_events.kind + 2
    return kind


def chosen_steps(recorded: RecordedSteps, operations: int, *, most: int) -> Int64:
    """Return complete windows, int64 [k], evenly spread, with about `most` of the operations, but at least one."""
    lanes = recorded.lanes
    complete = np.flatnonzero(complete_steps(lanes, recorded.steps).windows)
    per_step = max(operations // max(len(lanes.windows), 1), 1)
    count = min(max(most // per_step, 1), len(complete))
    return complete[np.linspace(0, len(complete) - 1, count).round().astype(np.int64)] if count else complete


def rows_in(time_ns: Int64, windows: Intervals) -> Int64:
    """Return the positions of sorted times, int64 [n], that lie in the windows."""
    first = np.searchsorted(time_ns, windows.start_ns, side="left").tolist()
    stop = np.searchsorted(time_ns, windows.end_ns, side="left").tolist()
    return np.concatenate([np.arange(begin, end) for begin, end in zip(first, stop, strict=True)])


def _each_once_outermost_first(events: EventTable, rows: Int64) -> Int64:
    """Return `outermost_first` without duplicates. Of equal times the one that was begun first, by its id, is outer."""
    rows = outermost_first(events, rows)
    start_ns, duration_ns = events.start_ns[rows], events.duration_ns[rows]
    tied = (start_ns[1:] == start_ns[:-1]) & (duration_ns[1:] == duration_ns[:-1])
    if not tied.any():
        return rows
    among = np.flatnonzero(np.append(tied, False) | np.append(False, tied))
    keys = (events.name[rows[among]], events.external_id[rows[among]], -duration_ns[among], start_ns[among])
    rows[among] = rows[among][np.lexsort(keys)]
    same = np.append(False, tied)
    same[1:] &= events.name[rows[1:]] == events.name[rows[:-1]]
    same[1:] &= events.external_id[rows[1:]] == events.external_id[rows[:-1]]
    return np.asarray(rows[~same])


def _exposed_ns(lanes: Lanes, kind: Int64, start_ns: Int64, end_ns: Int64) -> Int64:
    """Return how long compute and copies run alone, int64 [n] device events, of which communication has 0. Starts are
    sorted.
    """
    exposed_ns = np.zeros(len(kind), dtype=np.int64)
    computes, copies = kind == 0, kind == 1
    rows = np.flatnonzero(computes)
    exposed_ns[rows] = end_ns[rows] - start_ns[rows] - _covered_ns(lanes.communication, start_ns[rows], end_ns[rows])
    rows = np.flatnonzero(copies)
    exposed_ns[rows] = _covered_ns(lanes.exposed_copy, start_ns[rows], end_ns[rows])
    return exposed_ns


def _covered_ns(lane: Intervals, start_ns: Int64, end_ns: Int64) -> Int64:
    """Return `lane.covered_ns`, int64 [n], faster for an event that meets none of the intervals. Starts are sorted."""
    if not len(lane) or not len(start_ns):
        return np.zeros(len(start_ns), dtype=np.int64)
    if _MEET_NONE * len(lane) > len(start_ns):  # most events may meet one
        return lane.covered_ns(start_ns, end_ns)
    # Events that begin before an interval ends, and of which one so far ends after it begins.
    first = np.searchsorted(np.maximum.accumulate(end_ns), lane.start_ns, side="right")
    stop = np.maximum(np.searchsorted(start_ns, lane.end_ns, side="left"), first)
    edges = len(start_ns) + 1
    may_meet = np.cumsum(np.bincount(first, minlength=edges) - np.bincount(stop, minlength=edges))[:-1] > 0
    covered_ns = np.zeros(len(start_ns), dtype=np.int64)
    covered_ns[may_meet] = lane.covered_ns(start_ns[may_meet], end_ns[may_meet])
    return covered_ns


def _operator_columns(events: EventTable, rows: Int64, lane: Intervals, *, is_exposed: bool) -> _Columns:
    """Return the columns of the operators of one thread.

    `is_exposed`: whether an operator is exposed while the lane is busy, or while it is not. An operator within one of
    its own name adds nothing to the total.
    """
    name, start_ns, duration_ns = events.name[rows].astype(np.int64), events.start_ns[rows], events.duration_ns[rows]
    end_ns = start_ns + duration_ns
    parent = parents(start_ns, end_ns)
    inner = np.flatnonzero(parent >= 0)
    outer = parent[inner]
    covered_ns = lane.covered_ns(start_ns, end_ns)
    exposed_ns = covered_ns if is_exposed else duration_ns - covered_ns
    self_ns, self_exposed_ns = duration_ns.copy(), exposed_ns.copy()
    for column, whole in ((self_ns, duration_ns), (self_exposed_ns, exposed_ns)):
        column -= np.bincount(outer, weights=whole[inner], minlength=len(rows)).astype(np.int64)
        np.maximum(column, 0, out=column)  # what is not properly nested
    total_ns = duration_ns.copy()
    total_ns[inner[name[inner] == name[outer]]] = 0
    return name + 1, total_ns, self_ns, self_exposed_ns


def _sums(events: EventTable, columns: _Columns, *, kinds: int) -> OperationSums:
    """Return the sums by key, which is `(name + 1) * kinds + kind`, of those with the most time.

    Sums of times below 2^53 ns, 104 days, are exact.
    """
    key, *times_ns = columns
    count = np.bincount(key)
    keys = np.flatnonzero(count)
    total, own, exposed = (np.bincount(key, weights=column)[keys].astype(np.int64) for column in times_ns)
    sums = OperationSums(
        name=keys // kinds,
        kind=keys % kinds,
        count=count[keys],
        total_ns=total,
        self_ns=own,
        exposed_ns=exposed,
    )
    kept = sums.rows(longest(sums, MOST_OF_RANK))
    texts = ("", *events.strings)  # 0: without a name
    names = np.array([texts[number] for number in kept.name.tolist()], dtype=object)
    kind_texts = np.array(["" if kinds == 1 else DEVICE_KINDS[number] for number in kept.kind.tolist()], dtype=object)
    return replace(kept, name=names, kind=kind_texts)


def longest(sums: OperationSums, most: int) -> Int64:
    """Return `longest_of` the three times."""
    return longest_of((sums.total_ns, sums.self_ns, sums.exposed_ns), most)


def longest_of(columns: Sequence[np.ndarray], most: int) -> Int64:
    """Return the rows, int64 [k], of the `most` with the most in each column [n]; those with the most in the first one
    come first.
    """
    rows = np.arange(len(columns[0]))
    if len(rows) > most:
        rows = np.unique(np.concatenate([np.argsort(-column, kind="stable")[:most] for column in columns]))
    return rows[np.argsort(-columns[0][rows], kind="stable")]
