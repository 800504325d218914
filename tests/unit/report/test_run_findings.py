"""When does the report of a run name a slow rank, and when exposed communication?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tests.unit.explain.gpu_runs import gpu_rank, result


@pytest.mark.parametrize(
    ("compute_us", "named"),
    [
        ((80, 70, 90), True),  # 30 us longer, with a scatter of 10
        ((60, 140, 60), False),  # 37 us longer on average, with a scatter of 46
        ((45, 90, 90), False),  # it was once the faster one
        ((80,), False),  # one step shows no scatter
    ],
)
def test_a_slow_rank_is_named_only_beyond_the_noise(tmp_path: Path, compute_us: tuple[int, ...], named: bool) -> None:
    """GIVEN rank 1 that computes this long in its steps, where rank 0 computes 50 us."""
    traces = []
    for rank in range(2):
        trace = TraceBuilder(rank=rank, world_size=2)
        for k, slow_us in enumerate(compute_us):
            duration_us, begin_us = (slow_us if rank else 50), 200 * k
            trace.step(k, begin_us, 200).kernel("gemm", begin_us, duration_us, launched_at=begin_us)
            trace.nccl("all_reduce", begin_us + duration_us, 160 - duration_us, launched_at=begin_us + 1)
        traces.append(trace)
    blamed = [
        finding["rank"]
        for finding in result(write_run(tmp_path, traces))["findings"]
        if "noise_ns" in finding["evidence"]
    ]
    assert blamed == ([1] if named else [])


def test_no_rank_is_named_when_all_are_similar(tmp_path: Path) -> None:
    actual = result(write_run(tmp_path, [gpu_rank(rank, compute_us=50 + rank) for rank in range(4)]))
    assert all(finding["rank"] is None for finding in actual["findings"])


def test_transfers_that_nothing_hides_are_a_finding(tmp_path: Path) -> None:
    """GIVEN ranks that compute for 50 us of a step of 100 us and transfer for the rest."""
    actual = result(write_run(tmp_path, [gpu_rank(rank) for rank in range(4)]))
    (finding,) = actual["findings"]
    evidence = finding["evidence"]
    assert (finding["cause"], finding["time_ns"], evidence["transfer_ns"]) == ("transfer", 50_000, 50_000)
    assert (evidence["kind"], finding["ranks"]) == ("all_reduce", [])


def test_who_waits_in_barriers_is_told_to_leave_them_out(tmp_path: Path) -> None:
    """GIVEN two ranks on CPUs whose steps of 100 us are half compute and half a barrier."""
    traces = [TraceBuilder(rank=rank, world_size=2) for rank in range(2)]
    for trace in traces:
        for begin in (0, 100, 200):
            trace.step(begin // 100, begin, 100).op("aten::mm", begin, 50)
            trace.gloo("barrier", begin + 50, 50)
    (finding,) = result(write_run(tmp_path, traces))["findings"]
    assert (finding["id"], finding["evidence"]["kind"]) == ("exposed-transfers", "barrier")
    assert (finding["saving_ns"], finding["evidence"]["bound_ns"]) == (None, pytest.approx(50_000, rel=0.1))
    assert "barrier()" in finding["action"]
