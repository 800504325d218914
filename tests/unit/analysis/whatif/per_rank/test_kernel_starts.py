"""Why kernels started when they did, in traces of a few kernels. Times are microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.unit.analysis.whatif.per_rank.recorded import recording
from tracekit.analysis.whatif.per_rank.kernel_starts import KernelStarts, kernel_starts
from tracekit.model.events import ABSENT

NOTHING = float("-inf")


@pytest.fixture
def trace() -> TraceBuilder:
    """A step with three kernels that are launched early and run with a gap of 1 between them: 10 to 110, 111 to 161,
    162 to 192.
    """
    trace = TraceBuilder().step(0, 0, 1000)
    trace.kernel("a", 10, 100, launched_at=0)
    trace.kernel("b", 111, 50, launched_at=2)
    return trace.kernel("c", 162, 30, launched_at=4)


def starts(trace: TraceBuilder, folder: Path) -> KernelStarts:
    found = recording(trace, folder)
    return kernel_starts(found.trace, found.lanes)


def awaited_us(trace: TraceBuilder, folder: Path) -> list[float]:
    """Return when the communication ended that each kernel waited for, NOTHING without any."""
    begin_ns = trace.wall_ns(0)
    found = starts(trace, folder).awaited_ns.tolist()
    return [NOTHING if time_ns == ABSENT else (time_ns - begin_ns) / 1000 for time_ns in found]


def test_kernels_that_are_launched_early_run_one_after_another(trace: TraceBuilder, tmp_path: Path) -> None:
    found = starts(trace, tmp_path)

    assert found.busy_ns.tolist() == [100_000, 50_000, 30_000]
    assert (found.reach_ns - trace.wall_ns(0)).tolist() == [110_000, 161_000, 192_000]
    assert found.gap_ns[1:].tolist() == [1000, 1000]
    assert found.awaited_ns.tolist() == [ABSENT] * 3


def test_a_kernel_that_is_launched_late_starts_its_latency_after_its_launch(
    trace: TraceBuilder, tmp_path: Path
) -> None:
    """GIVEN a device that is idle from 192 on THEN what the kernel of 300 waits for is its launch, not the device."""
    found = starts(trace.kernel("d", 307, 20, launched_at=300), tmp_path)

    assert (found.latency_ns[3], found.busy_ns[3]) == (7000, 20_000)
    assert found.gap_ns[3] == 1000  # launched in time it would have followed with the usual gap


def test_a_kernel_waits_for_communication(trace: TraceBuilder, tmp_path: Path) -> None:
    trace.nccl("all_reduce", 165, 135, launched_at=5).kernel("d", 302, 20, launched_at=6)
    found = starts(trace, tmp_path)

    assert awaited_us(trace, tmp_path) == [NOTHING, NOTHING, NOTHING, 300]
    assert found.gap_ns[3] == 2000  # from the end of the communication


def test_a_kernel_that_starts_long_after_communication_has_not_waited_for_it(
    trace: TraceBuilder, tmp_path: Path
) -> None:
    trace.nccl("all_reduce", 165, 50, launched_at=5).kernel("d", 302, 20, launched_at=6)

    assert awaited_us(trace, tmp_path) == [NOTHING] * 4


def test_a_copy_out_of_the_buffer_of_communication_is_part_of_it(trace: TraceBuilder, tmp_path: Path) -> None:
    """GIVEN a copy on a stream of its own from 301 to 311 THEN it is no kernel of the list; the next kernel waits."""
    trace.nccl("all_reduce", 165, 135, launched_at=5).kernel("copy_out", 301, 10, stream=21, launched_at=6)
    trace.kernel("d", 313, 20, launched_at=7)

    assert awaited_us(trace, tmp_path) == [NOTHING, NOTHING, NOTHING, 300]
    assert starts(trace, tmp_path).gap_ns[3] == 2000


def test_of_two_that_have_ended_a_kernel_waits_for_the_later_one(trace: TraceBuilder, tmp_path: Path) -> None:
    trace.nccl("all_reduce", 165, 125, launched_at=5).nccl("all_gather", 165, 135, launched_at=5, stream=21)
    trace.kernel("d", 302, 20, launched_at=6)

    assert awaited_us(trace, tmp_path)[3] == 300


def test_kernels_whose_launch_is_not_known_are_left_out(trace: TraceBuilder, tmp_path: Path) -> None:
    assert len(starts(trace.kernel("d", 302, 20), tmp_path)) == 3


def test_a_rank_without_kernels(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 1000).nccl("all_reduce", 10, 100, launched_at=5)
    assert len(starts(trace, tmp_path)) == 0
