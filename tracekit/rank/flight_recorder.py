"""Which `c10d::*` operator created each entry of torch's flight recorder, and which entries have none."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tracekit.model.communication import FlightRecorderMatch, Unjoined
from tracekit.model.events import DecodedTrace, Int64
from tracekit.model.metadata import CollectiveRecord
from tracekit.model.names.collectives import kind_of_collective
from tracekit.rank.steps import step_thread

_RUN_AS = {"reduce_scatter": "all_reduce"}
_OTHER_THREAD = "issued on a thread that the profiler does not record"
_NO_OPERATOR = "issued outside of every recorded operator"
_NOT_OVER = "still queued or running when the recording ended"
_NO_SPAN = "without a span of its own"
_MOST_DIFFERENCE_NS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Entries:
    """Entries of the flight recorder, matched to operators.

    Attributes:
        of_operator: for each operator its entries in order of time.
        outside: entries that were created in no operator.
    """

    of_operator: list[list[CollectiveRecord]]
    outside: list[CollectiveRecord] = field(default_factory=list)


def run_as(kind: str) -> str:
    """Return the kind that Gloo runs for a kind of collective: a reduce-scatter is an all-reduce of the full input."""
    return _RUN_AS.get(kind, kind)


def entries_of_operators(trace: DecodedTrace, operators: Int64) -> Entries:
    """Return the entries that were created inside each operator, on its thread as far as that is known.

    Operators of several threads may run at once. Then the entry goes to an operator of its kind if there is one, and of
    these to the last that began. If most entries without an operator would have one if the clocks of profiler and
    recorder differed by a constant, they do.
    """
    events, metadata = trace.events, trace.header.metadata
    entries = Entries(of_operator=[[] for _ in operators])
    if metadata is None:
        return entries
    times = _Operators(
        start_ns=events.start_ns[operators].tolist(),
        end_ns=events.end_ns[operators].tolist(),
        kinds=[run_as(kind_of_collective(events.strings[name])) for name in events.name[operators]],
        on_step_thread=(events.track[operators] == step_thread(events)).tolist(),
    )
    records = sorted(metadata.collectives, key=lambda record: record.created_ns)
    entries = _entries_at(times, records, 0)
    outside = [record for record in entries.outside if record.on_step_thread is not False]
    if len(outside) < 2:
        return entries
    shifted = [_entries_at(times, records, difference_ns) for difference_ns in _clock_differences(times, outside)]
    better = [each for each in shifted if len(entries.outside) - len(each.outside) > len(outside) / 2]
    return min(better, key=lambda each: len(each.outside), default=entries)


@dataclass(frozen=True, kw_only=True)
class _Operators:
    """Operators in order of their start, with the kind that Gloo runs."""

    start_ns: list[int]
    end_ns: list[int]
    kinds: list[str]
    on_step_thread: list[bool]


def _entries_at(operators: _Operators, records: list[CollectiveRecord], difference_ns: int) -> Entries:
    """Match the records, of a clock that is so far ahead of the operators'."""
    entries = Entries(of_operator=[[] for _ in operators.kinds])
    running: list[int] = []
    next_operator = 0
    for record in records:
        created_ns = record.created_ns - difference_ns
        while next_operator < len(operators.kinds) and operators.start_ns[next_operator] <= created_ns:
            running.append(next_operator)
            next_operator += 1
        running = [position for position in running if operators.end_ns[position] >= created_ns]
        candidates = [p for p in running if record.on_step_thread in {None, operators.on_step_thread[p]}]
        same_kind = [position for position in candidates if operators.kinds[position] == run_as(record.kind)]
        if candidates:
            entries.of_operator[(same_kind or candidates)[-1]].append(record)
        else:
            entries.outside.append(record)
    return entries


def _clock_differences(operators: _Operators, outside: list[CollectiveRecord]) -> list[int]:
    """Return by how much the recorder's clock may be ahead of the operators', if that is why entries have no operator.

    The profiler counts ticks, and takes the machine's time once. If it is interrupted while it does so, all its times
    are off by as much: a fraction of a millisecond.
    """
    ahead_ns, behind_ns = [], []
    for record in outside:
        same_kind = [position for position, kind in enumerate(operators.kinds) if kind == run_as(record.kind)]
        after = bisect_right(same_kind, record.created_ns, key=lambda position: operators.start_ns[position])
        ahead_ns += [record.created_ns - operators.end_ns[position] for position in same_kind[after - 1 : after]]
        behind_ns += [operators.start_ns[position] - record.created_ns for position in same_kind[after : after + 1]]
    ahead_ns, behind_ns = ([ns for ns in off if ns <= _MOST_DIFFERENCE_NS] for off in (ahead_ns, behind_ns))
    return [*([max(ahead_ns)] if ahead_ns else []), *([-max(behind_ns)] if behind_ns else [])]


def match_flight_recorder(entries: Entries, spans: Mapping[int, int]) -> FlightRecorderMatch:
    """Return how many entries have an operator and a span.

    `spans` says how many spans each operator has, by its position.
    """
    reasons: Counter[tuple[str, str]] = Counter()
    for record in entries.outside:
        reasons[record.kind, _OTHER_THREAD if record.on_step_thread is False else _NO_OPERATOR] += 1
    # A group runs its collectives in order. If none that was issued later has run, the recording ended before this one.
    later_ran: set[int] = set()
    for position in range(len(entries.of_operator) - 1, -1, -1):
        for number, record in enumerate(entries.of_operator[position]):
            if number < spans.get(position, 0):
                later_ran.add(record.group)
            else:
                reasons[record.kind, _NO_SPAN if record.group in later_ran else _NOT_OVER] += 1
    return FlightRecorderMatch(
        recorded=len(entries.outside) + sum(map(len, entries.of_operator)),
        unjoined=tuple(
            Unjoined(kind=kind, reason=reason, count=count, expected=reason in {_OTHER_THREAD, _NOT_OVER})
            for (kind, reason), count in sorted(reasons.items())
        ),
    )
