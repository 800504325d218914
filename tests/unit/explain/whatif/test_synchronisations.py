"""When a host waited for its device, and for what. Times are microseconds."""

from __future__ import annotations

from pathlib import Path

from tests.builders import TraceBuilder
from tests.unit.explain.whatif.intervals import rows, synchronise


def waits(trace: TraceBuilder, folder: Path) -> list[tuple[object, ...]]:
    """Return begin and end of each wait of the host, and the ends of the kernel and the communication behind it."""
    names = ("begin", "until", "awaited_kernel", "awaited_communication")
    return [tuple(row.get(name) for name in names) for row in rows(trace, folder) if row["what"] == "synchronise"]


def test_a_host_waits_for_all_kernels_that_it_has_launched(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 200).kernel("gemm", 5, 100, launched_at=0)
    synchronise(trace, 10, 99)
    assert waits(trace, tmp_path) == [(10, 109, 105, None)]


def test_a_host_waits_for_an_event_before_the_last_kernel(tmp_path: Path) -> None:
    """GIVEN a host that waits for the first of two kernels, as FSDP does to limit how far it runs ahead."""
    trace = TraceBuilder().step(0, 0, 300)
    trace.kernel("gemm", 5, 100, launched_at=0).kernel("gemm", 106, 100, launched_at=5)
    synchronise(trace, 10, 99, "cudaEventSynchronize")
    assert waits(trace, tmp_path) == [(10, 109, 105, None)]
    assert [row["what"] for row in rows(trace, tmp_path)].count("mark") == 1  # where the second is launched


def test_a_host_waits_for_communication(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 400)
    trace.kernel("gemm", 5, 100, launched_at=0).nccl("all_reduce", 107, 200, launched_at=5)
    synchronise(trace, 10, 300, "cudaDeviceSynchronize")
    assert waits(trace, tmp_path) == [(10, 310, 105, 307)]
