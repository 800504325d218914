"""When communication was launched, and what it had to wait for. Times are microseconds."""

from __future__ import annotations

from pathlib import Path

from tests.builders import TraceBuilder
from tests.unit.analysis.whatif.per_rank.segments import rows


def launches(trace: TraceBuilder, folder: Path, *names: str) -> list[tuple[object, ...]]:
    return [tuple(row.get(name) for name in names) for row in rows(trace, folder) if row["what"] == "launch"]


def test_a_collective_needs_the_kernels_that_were_launched_before_it(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 1000)
    trace.kernel("gemm", 5, 100, launched_at=0).nccl("all_reduce", 107, 200, launched_at=5)
    found = launches(trace, tmp_path, "begin", "communication_end", "needs_kernels")
    assert found == [(5, 307, True)]


def test_all_gathers_that_run_beside_earlier_kernels_do_not_need_them(tmp_path: Path) -> None:
    """GIVEN all-gathers on a stream of their own THEN one whose begin tells nothing does not need them either."""
    trace = TraceBuilder().step(0, 0, 1000)
    trace.kernel("gemm", 5, 400, launched_at=0).nccl("all_gather", 10, 100, launched_at=5)
    trace.kernel("gemm", 406, 400, launched_at=10).nccl("all_gather", 112, 100, launched_at=15)
    trace.nccl("all_gather", 905, 100, launched_at=900)
    assert launches(trace, tmp_path, "needs_kernels") == [(False,), (False,), (False,)]


def test_a_bucket_follows_the_one_before_it_on_its_stream(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 1000)
    trace.kernel("gemm", 5, 100, launched_at=0).nccl("all_reduce", 107, 400, launched_at=5)
    trace.kernel("gemm", 106, 100, launched_at=10).nccl("all_reduce", 508, 100, launched_at=15)
    assert launches(trace, tmp_path, "awaited_communication") == [(None,), (507,)]


def test_a_collective_waits_for_one_of_another_group_that_compute_waits_for(tmp_path: Path) -> None:
    """GIVEN a reduction of gradients that is launched after a tensor-parallel all-reduce, which blocks the stream."""
    trace = TraceBuilder().step(0, 0, 1000)
    trace.kernel("gemm", 5, 100, launched_at=0)
    trace.nccl("all_reduce", 107, 400, launched_at=5, group=(0, 1), description="tp")
    trace.nccl("all_reduce", 509, 100, launched_at=10, group=(0, 2), description="dp", stream=24)
    assert launches(trace, tmp_path, "awaited_communication") == [(None,), (507,)]
