"""The clocks, steps and command-line arguments of a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.analysis.exchanges import rank, run_of, send
from tests.unit.analysis.simulated import Cluster
from tracekit.model.clocks import ClockJump, ClockModel, clocks_are_comparable
from tracekit.model.communication import GroupKey
from tracekit.model.run import OtherRun

SECOND_NS = 1_000_000_000


def test_times_of_a_clock_that_is_ahead_and_drifts() -> None:
    """GIVEN 500 ns ahead at 1 s, and 100 ppm fast THEN 500 ns less at 1 s, and 100 us more of that a second later."""
    clock = ClockModel(rank=1, method="probe", offset_ns=500, at_ns=SECOND_NS, drift_ppm=100.0)

    actual = clock.to_run(np.array([SECOND_NS, 2 * SECOND_NS, 0]))

    assert actual.tolist() == [SECOND_NS - 500, 2 * SECOND_NS - 500 - 100_000, -500 + 100_000]


def test_after_a_jump_its_offset_holds() -> None:
    """GIVEN 5 ns ahead, from 100 on 50 ns, and from 200 on right THEN each time has the offset of its part."""
    jumps = tuple(ClockJump(from_ns=at, offset_ns=to, at_ns=at) for at, to in ((100, 50), (200, 0)))
    clock = ClockModel(rank=1, method="collectives", offset_ns=5, jumps=jumps)

    assert clock.to_run(np.array([99, 100, 199, 200])).tolist() == [94, 50, 149, 200]


def test_intervals_across_a_jump_back_do_not_end_before_they_start() -> None:
    """GIVEN a clock that is set back by 50 ns at 100 THEN an interval across it is shorter by that, but never
    negative.
    """
    clock = ClockModel(rank=1, method="collectives", jumps=(ClockJump(from_ns=100, offset_ns=50, at_ns=100),))
    start_ns, end_ns = clock.intervals_to_run(np.array([10, 90, 100]), np.array([120, 110, 120]))
    assert start_ns.tolist() == [10, 90, 50]
    assert end_ns.tolist() == [70, 90, 70]


@given(
    times_ns=st.lists(st.integers(-(2**53), 2**61), min_size=1, max_size=5),
    offset_ns=st.integers(-(10**12), 10**12),
    drift_ppm=st.none() | st.floats(-500, 500),
    steps=st.lists(st.tuples(st.integers(0, 2**61), st.integers(-(10**9), 10**9)), max_size=3),
)
def test_single_times_convert_as_arrays_do(
    times_ns: list[int], offset_ns: int, drift_ppm: float | None, steps: list[tuple[int, int]]
) -> None:
    clock = ClockModel(
        rank=1, offset_ns=offset_ns, drift_ppm=drift_ppm, method="probe", at_ns=1_752_000_000_000_000_000,
        jumps=tuple(ClockJump(from_ns=at, offset_ns=to, at_ns=at) for at, to in sorted(steps)),
    )  # fmt: skip
    expected = clock.to_run(np.array(times_ns, dtype=np.int64)).tolist()
    assert [clock.moment_to_run(time_ns) for time_ns in times_ns] == expected


def test_clocks_of_one_machine_or_measured_clocks_are_comparable() -> None:
    near, far = [rank(0, host="node0"), rank(1, host="node0")], [rank(0, host="node0"), rank(1, host="node1")]
    unknown = [ClockModel(rank=number, method="none") for number in range(2)]
    measured = [ClockModel(rank=number, method="probe") for number in range(2)]

    assert [clocks_are_comparable(near, unknown), clocks_are_comparable(far, unknown)] == [True, False]
    assert clocks_are_comparable(far, measured)
    assert not clocks_are_comparable(far, [measured[0], unknown[1]])

    without_times = replace(far[1], unmeasured="no kernels")
    assert clocks_are_comparable([far[0], without_times], [measured[0], unknown[1]])


def test_steps_are_compared_that_all_ranks_completed() -> None:
    """GIVEN step 2 cut off on rank 1, and step 3 recorded by rank 0 alone THEN step 1, of 100 and 300 ns, is common."""
    first, second = rank(0, steps=(1, 2, 3)), rank(1, steps=(1, 2))
    lengths = (replace(second.steps[0], step_ns=300), replace(second.steps[1], complete=False))

    run = run_of([first, replace(second, steps=lengths)])

    assert run.common_steps() == {1}
    assert run.mean_rank_step_ns() == 200


@pytest.mark.parametrize(
    ("others", "selected", "expected"),
    [
        ((), None, ["run"]),
        ((), (0, 2), ["run", "--ranks", "0,2"]),
        ((("run-2", 0),), None, ["run", "--run", "run-1"]),
        ((("run-1", 0),), None, ["run", "--run", "run-1", "--attempt", "1"]),
    ],
)
def test_the_arguments_select_the_same_run_again(
    others: tuple[tuple[str, int], ...], selected: tuple[int, ...] | None, expected: list[str]
) -> None:
    other_runs = tuple(OtherRun(run_id=name, attempt=attempt, ranks=1, start_ns=None) for name, attempt in others)

    assert run_of([rank(0)], attempt=1, other_runs=other_runs, selected_ranks=selected).arguments == expected


def test_ranks_without_messages_or_collectives_are_independent() -> None:
    assert run_of([rank(0), rank(1)]).ranks_are_independent
    assert not run_of([rank(0)]).ranks_are_independent
    assert not run_of([rank(0), rank(1, [send(0, 5)])]).ranks_are_independent


def test_an_rpc_server_is_no_rank_that_trains() -> None:
    server = rank(0, steps=(), serves_only=True)

    assert not run_of([server, rank(1)]).ranks_are_independent
    assert run_of([server, rank(1), rank(2)]).ranks_are_independent


def test_gpu_ranks_are_independent_only_if_they_make_remote_calls() -> None:
    """Because kernels that no rule is for may communicate."""
    ranks = [rank(number, device="gpu") for number in range(2)]

    assert not run_of(ranks).ranks_are_independent
    assert run_of([replace(summary, strategies=("rpc",)) for summary in ranks]).ranks_are_independent


def test_collectives_of_one_member_are_none() -> None:
    """GIVEN collectives in a group of one, of several, and of unknown members."""
    for members, expected in (((1,), True), ((0, 1), False), ((), False)):
        cluster = Cluster(2)
        for _ in cluster.steps(1):
            cluster.collective((1,))
        run = cluster.run()
        group = GroupKey(description="", ranks=members)
        ranks = tuple(replace(summary, groups=(group,)) for summary in run.ranks)
        assert replace(run, ranks=ranks).ranks_are_independent is expected
