"""Which of several groups in flight a rank waits for: by hand in microseconds, and by counting nanoseconds."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import TraceBuilder
from tracekit.analysis.communication.parts import IN_FLIGHT_TIMES
from tracekit.analysis.communication.per_rank import in_flight_times
from tracekit.analysis.per_rank.options import SummaryOptions
from tracekit.analysis.per_rank.summarize import summarize_trace
from tracekit.model.summary import RankSummary
from tracekit.read.decode.portable import decode

Event = tuple[int, int]  # start and end


def trace_of(compute: list[Event], groups: dict[str, list[Event]], *, until: int, scale: float = 1) -> TraceBuilder:
    """Return a trace of one step from 0 to `until`, in microseconds by `scale`; each group has a separate stream."""
    trace = TraceBuilder(rank=0, world_size=8).step(0, 0, until * scale)
    for begin, end in compute:
        trace.kernel("gemm", begin * scale, (end - begin) * scale, launched_at=0)
    for number, (name, collectives) in enumerate(groups.items()):
        for begin, end in collectives:
            ranks = [0, number + 1]
            where = {"stream": 20 + number, "group": ranks, "description": f"mesh_{name}", "launched_at": 0}
            trace.nccl("all_reduce", begin * scale, (end - begin) * scale, **where)
    return trace


def summary_of(trace: TraceBuilder) -> RankSummary:
    with TemporaryDirectory() as folder:
        path = trace.write(Path(folder) / "rank0.json")
        return summarize_trace(decode(path), trace.rank, SummaryOptions())


def charged(summary: RankSummary) -> dict[str, int]:
    """Return the charged nanoseconds by name of the group."""
    result: dict[str, int] = {}
    for row in summary[IN_FLIGHT_TIMES]:
        if row.charged is not None and row.charged.group is not None:
            name = row.charged.group.description.removeprefix("mesh_")
            result[name] = result.get(name, 0) + row.total_ns
    return result


def test_one_group_after_the_other() -> None:
    trace = trace_of([(0, 10)], {"tp": [(10, 30)], "dp": [(30, 35)]}, until=40)
    assert charged(summary_of(trace)) == {"tp": 20_000, "dp": 5_000}


def test_nothing_is_charged_under_compute() -> None:
    summary = summary_of(trace_of([(0, 30), (40, 50)], {"tp": [(10, 20)], "dp": [(15, 25)]}, until=50))
    assert charged(summary) == {}
    assert sum(row.total_ns for row in summary[IN_FLIGHT_TIMES]) == 15_000


def test_the_last_of_two_to_end_is_charged() -> None:
    trace = trace_of([(0, 10), (40, 50)], {"tp": [(10, 20)], "dp": [(12, 40)]}, until=50)
    assert charged(summary_of(trace)) == {"tp": 2_000, "dp": 28_000}


def test_what_is_in_flight_when_compute_continues_is_not_charged() -> None:
    trace = trace_of([(0, 10), (30, 90)], {"tp": [(10, 30)], "dp": [(5, 80)]}, until=100)
    assert charged(summary_of(trace)) == {"tp": 20_000}


def test_a_long_collective_is_charged_in_the_gap_in_which_it_ends() -> None:
    """dp outlasts the first gap, in which tp ends, and ends in the second."""
    trace = trace_of([(0, 10), (30, 50), (70, 80)], {"tp": [(10, 28)], "dp": [(5, 60)]}, until=100)
    assert charged(summary_of(trace)) == {"tp": 18_000, "dp": 2_000 + 10_000}


EVENTS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25)).map(lambda e: (e[0], e[0] + e[1])), max_size=4)


def counted(compute: list[Event], groups: dict[str, list[Event]], until: int) -> dict[str, int]:
    """Apply the rule of the module's docstring to each nanosecond; of equal ends the first name counts."""
    computes = [any(begin <= t < end for begin, end in compute) for t in range(200)]
    result: dict[str, int] = {}
    for t in range(until):
        goes_on = next((later for later in range(t, 200) if computes[later]), 200)
        in_flight = [
            (end <= goes_on, end, name) for name, events in groups.items() for begin, end in events if begin <= t < end
        ]
        if in_flight and not computes[t]:
            best = max(in_time_and_end for *in_time_and_end, _ in in_flight)
            name = min(name for *in_time_and_end, name in in_flight if in_time_and_end == best)
            result[name] = result.get(name, 0) + 1
    return result


@settings(max_examples=150, deadline=None)
@given(EVENTS, EVENTS, EVENTS, EVENTS)
def test_the_charge_is_that_of_counting_nanoseconds(
    compute: list[Event], tp: list[Event], dp: list[Event], pp: list[Event]
) -> None:
    groups = {"tp": tp, "dp": dp, "pp": pp}
    compute = [(0, 1), *compute]  # the device's step begins with it
    until = max(end for events in (compute, tp, dp, pp) for _, end in events)
    summary = summary_of(trace_of(compute, groups, until=until, scale=0.001))
    (step,) = summary.steps
    assert charged(summary) == counted(compute, groups, until)
    assert sum(row.total_ns for row in summary[IN_FLIGHT_TIMES] if row.charged is not None) == step.exposed_comm_ns
    assert sum(row.total_ns for row in summary[IN_FLIGHT_TIMES]) == step.comm_ns
    for name, events_of_group in groups.items():  # the union of each comes out as well
        covered = sum(any(begin <= t < end for begin, end in events_of_group) for t in range(until))
        rows = [
            row
            for row in summary[IN_FLIGHT_TIMES]
            if any(t.group.description == f"mesh_{name}" for t in row.in_flight if t.group)
        ]
        assert sum(row.total_ns for row in rows) == covered


def test_windows_of_a_rank_add_up() -> None:
    one = summary_of(trace_of([(0, 10)], {"tp": [(10, 30)], "dp": [(20, 25)]}, until=40))[IN_FLIGHT_TIMES]
    other = summary_of(trace_of([(0, 10)], {"dp": [(10, 17)], "tp": [(12, 15)]}, until=40))[IN_FLIGHT_TIMES]
    merged = IN_FLIGHT_TIMES.merge([one, other])
    assert sum(row.total_ns for row in merged) == sum(row.total_ns for row in (*one, *other)) == 27_000
    assert len(merged) == 4  # tp alone, both for tp, dp alone, both for dp


def many_groups(groups: int, *, for_us: float) -> TraceBuilder:
    """Return a trace in which each group has one collective, one after the other by 10 us."""
    events: dict[str, list[Event]] = {
        f"g{number:04}": [(10 * number, 10 * number + for_us)] for number in range(groups)
    }
    return trace_of([(0, 1)], events, until=10 * groups)


def test_groups_that_are_not_in_flight_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN collectives of many groups, one after the other THEN a group is looked for where it is alone."""
    looked_at: list[int] = []
    original = in_flight_times._latest_end
    monkeypatch.setattr(
        in_flight_times, "_latest_end", lambda *columns: (looked_at.append(len(columns[2])), original(*columns))[1]
    )
    summary = summary_of(many_groups(60, for_us=5))
    assert charged(summary) == {f"g{number:04}": 5_000 - 1_000 * (number == 0) for number in range(60)}
    assert sum(looked_at) <= 2 * (60 + 1)


def test_too_many_collectives_at_once_are_not_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN 40 collectives, three of which are in flight at any time THEN a limit decides whether groups are told
    apart; their sums are the same."""
    sums = []
    for limit, groups in ((40 * 2 * 4, 40), (40 * 2 * 2, 1)):
        monkeypatch.setenv("TRACEKIT_LIMITS", f"in_flight={limit}")
        summary = summary_of(many_groups(40, for_us=25))
        rows = summary[IN_FLIGHT_TIMES]
        assert len({row.charged for row in rows if row.charged is not None}) == groups
        sums.append(sum(row.total_ns for row in rows if row.charged is not None))
        noted = [note.text for note in summary.notes if note.kind == "limit"]
        assert noted == ([] if groups == 40 else [f"rank 0: rank0.json: {TOO_MANY.format(limit)}"])
    assert sums[0] == sums[1] == 414_000


TOO_MANY = "too many collectives at once (limit in_flight={}): their time is not told apart by group"
