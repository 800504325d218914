"""When a thread was blocked by remote calls: its waits, as far as a call was in flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.exchanges import rank
from tracekit.model.intervals import Intervals
from tracekit.model.metadata import RpcCall, RpcUse, RpcWait
from tracekit.rpc.calls import blocked_time, complete_time, in_flight_time, time_of


def pairs(time: Intervals) -> list[tuple[int, int]]:
    return list(zip(time.start_ns.tolist(), time.end_ns.tolist(), strict=True))


def call(issued_ns: int, done_ns: int | None) -> RpcCall:
    return RpcCall(number=0, callee="ps", function="pull", kind="call", issued_ns=issued_ns, done_ns=done_ns)


def use(calls: Sequence[RpcCall], waits: Sequence[tuple[int, int]]) -> RpcUse:
    recorded = [RpcWait(start_ns=start, end_ns=end, number=None) for start, end in waits]
    return RpcUse(worker="trainer", worker_id=1, calls=list(calls), waits=recorded)


def test_time_of_is_the_union_of_its_pairs() -> None:
    assert pairs(time_of([(30, 40), (10, 20), (15, 25)])) == [(10, 25), (30, 40)]
    assert pairs(time_of([])) == []


def test_a_wait_is_for_remote_calls_while_one_is_in_flight() -> None:
    """
    calls  10-----30        50-60
    waits      20-----45      55-----80     90-95     for other futures after the calls are done
    """
    recorded = use([call(10, 30), call(50, 60)], [(20, 45), (55, 80), (90, 95)])

    assert pairs(blocked_time(recorded)) == [(20, 30), (55, 60)]


def test_a_call_without_end_is_in_flight_until_the_last_wait_ends() -> None:
    recorded = use([call(10, None)], [(20, 45), (55, 80)])

    assert pairs(blocked_time(recorded)) == [(20, 45), (55, 80)]


@pytest.mark.parametrize(("until", "expected"), [([(0, 80)], [(10, 80)]), ([(0, 5)], []), ([], [])])
def test_a_call_without_end_is_never_in_flight_before_it_is_issued(
    until: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    assert pairs(in_flight_time([call(10, None)], time_of(until))) == expected


def test_complete_steps_alone_count() -> None:
    """GIVEN steps 0-100, 100-150 and 150-170, of which the second is not complete THEN 0-100 and 150-170."""
    (step,) = rank(0).steps
    steps = [
        replace(step, start_ns=start_ns, step_ns=length_ns, complete=complete)
        for start_ns, length_ns, complete in ((0, 100, True), (100, 50, False), (150, 20, True))
    ]

    assert pairs(complete_time(steps)) == [(0, 100), (150, 170)]
