"""By how much is a device's clock behind that of its host? Times are microseconds."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tracekit.rank.kernel_launches import device_events, on_host_clock, without_overlaps
from tracekit.read.decode.portable import decode


def job(*, behind: float, kernels: int = 20) -> TraceBuilder:
    """Kernels that begin 7 us or more after their launch, on a device whose clock is behind."""
    trace = TraceBuilder().step(0, 0, 100 * kernels)
    for k in range(kernels):
        trace.kernel("gemm", 100 * k + 7 + k - behind, 50, launched_at=100 * k)
    return trace


@pytest.mark.parametrize(("behind", "shifted"), [(0, 0), (7, 0), (17, 0), (18, 11_000), (507, 500_000)])
def test_device_events_move_until_no_kernel_precedes_its_launch(tmp_path: Path, behind: float, shifted: int) -> None:
    """A lead of up to 10 us is that of a conversion of clocks, and stays."""
    events = decode(job(behind=behind).write(tmp_path / "rank0.json")).events
    actual, device, behind_ns = on_host_clock(events)
    assert behind_ns == shifted
    is_kernel = events.in_category("kernel")
    assert (actual.start_ns - events.start_ns).tolist() == [shifted * int(kernel) for kernel in is_kernel.tolist()]
    assert device.linked.all()


def test_a_wrong_link_moves_nothing(tmp_path: Path) -> None:
    """GIVEN one of 200 kernels whose correlation id is that of a later launch THEN the clock is not blamed."""
    trace = job(behind=0, kernels=200)
    kernels = [event for event in trace.events if event["cat"] == "kernel"]
    kernels[0]["args"]["correlation"] = kernels[-1]["args"]["correlation"]
    assert on_host_clock(decode(trace.write(tmp_path / "rank0.json")).events)[2] == 0


def test_ids_that_several_launches_have_move_nothing(tmp_path: Path) -> None:
    trace = job(behind=0)
    trace.event("cudaLaunchKernel", "cuda_runtime", 5000, 1, args={"correlation": 77})
    trace.event("cudaLaunchKernel", "cuda_runtime", 6000, 1, args={"correlation": 77})
    for k in range(5):
        trace.kernel("gemm", 3000 + 10 * k, 5, correlation=77)
    assert on_host_clock(decode(trace.write(tmp_path / "rank0.json")).events)[2] == 0


def test_many_kernels_and_calls_of_one_id_cost_no_square(tmp_path: Path) -> None:
    """GIVEN 20,000 launches and kernels with one correlation id THEN each has the last launch before it, at once."""
    count = 20_000
    kernels = TraceBuilder()
    for k in range(count):
        kernels.event("cudaLaunchKernel", "cuda_runtime", 10 * k, 1, args={"correlation": 7})
        kernels.kernel("gemm", 10 * k + 5, 1, correlation=7)
    events = decode(kernels.write(tmp_path / "rank0.json", "compact")).events
    began = time.process_time()
    device = device_events(events)
    assert time.process_time() - began < 2
    assert (events.start_ns[device.row] - device.launch_ns).tolist() == [5000] * count
    assert device.is_ambiguous.all()


def of_one_stream(*kernels: tuple[int, int, int]) -> TraceBuilder:
    """Thirty kernels of 2900 us, and others: at, for and of which stream."""
    trace = TraceBuilder().step(0, 0, 100_000)
    for at, for_us, stream in (*((3000 * i, 2900, 7) for i in range(30)), *kernels):
        trace.kernel("gemm", at, for_us, stream=stream, launched_at=at - 1)
    return trace


@pytest.mark.parametrize(
    ("kernel", "expected_us"),
    [
        ((2950, 20_000, 7), 50),  # the next one begins at 3000
        ((2950, 1000, 7), 1000),  # as a dependent launch lets kernels overlap
        ((2950, 20_000, 8), 20_000),  # the only one of its stream
    ],
)
def test_a_kernel_ends_when_the_next_one_of_its_stream_begins(
    tmp_path: Path, kernel: tuple[int, int, int], expected_us: int
) -> None:
    events = decode(of_one_stream(kernel).write(tmp_path / "rank0.json")).events
    actual, count = without_overlaps(events, device_events(events))
    assert count == (expected_us == 50)
    assert actual.duration_ns[-1] == 1000 * expected_us
    assert actual.duration_ns[:-1].tolist() == events.duration_ns[:-1].tolist()


def test_where_many_kernels_overlap_their_tracks_are_no_streams(tmp_path: Path) -> None:
    trace = of_one_stream(*((3000 * i + 10, 2900, 7) for i in range(5)))
    events = decode(trace.write(tmp_path / "rank0.json")).events
    assert without_overlaps(events, device_events(events)) == (events, 0)


def test_kernels_of_a_graph_may_overlap(tmp_path: Path) -> None:
    trace = of_one_stream().launch_graph(95_000, ("a", 95_010, 4000, 7), ("b", 95_020, 4000, 7))
    events = decode(trace.write(tmp_path / "rank0.json")).events
    assert without_overlaps(events, device_events(events))[1] == 0
