"""Which launches have no kernel, and which of them is no loss. Times are microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tracekit.model.events import EventTable
from tracekit.rank.kernel_launches import device_events
from tracekit.rank.missing_kernels import KernelLaunches, kernel_launches, records_end_ns
from tracekit.read.decode.portable import decode

CALLS = (
    *("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "cuLaunchKernel", "cuLaunchKernelEx"),
    *("hipLaunchKernel", "hipExtLaunchKernel", "hipExtModuleLaunchKernel", "hipModuleLaunchKernel"),
    *("urEnqueueKernelLaunch", "cudaGraphLaunch", "hipGraphLaunch", "cuGraphLaunch"),
)


def decoded(folder: Path, trace: TraceBuilder) -> tuple[EventTable, KernelLaunches]:
    events = decode(trace.write(folder / "rank0.json")).events
    return events, kernel_launches(events, device_events(events))


def launch(trace: TraceBuilder, at: float, call: str = "cudaLaunchKernel", **args: int) -> TraceBuilder:
    """A call whose kernel is not recorded."""
    return trace.event(call, "cuda_runtime", at, 1, args={"correlation": 9000 + int(at)} | args)


def missing_at(trace: TraceBuilder, launches: KernelLaunches) -> list[int]:
    """Return when kernels were launched that are missing."""
    return [(ns - trace.wall_ns(0)) // 1000 for ns in launches.start_ns[launches.missing].tolist()]


@pytest.mark.parametrize("call", CALLS)
def test_every_call_that_launches_kernels_counts(tmp_path: Path, call: str) -> None:
    trace = launch(TraceBuilder().kernel("k0", 10, 5, launched_at=2), 4, call)
    assert missing_at(trace, decoded(tmp_path, trace)[1]) == [4]


def test_a_launch_without_correlation_id_tells_nothing(tmp_path: Path) -> None:
    trace = TraceBuilder().event("cudaLaunchKernel", "cuda_runtime", 1, 1).op("aten::mm", 0, 5)
    assert len(decoded(tmp_path, trace)[1]) == 0


def test_one_launch_of_a_graph_stands_for_its_kernels(tmp_path: Path) -> None:
    """GIVEN two graphs with 2 and 4 kernels, and one without any THEN that one lacks 3."""
    trace = TraceBuilder()
    trace.launch_graph(0, ("a", 10, 5, 7), ("b", 15, 5, 7))
    trace.launch_graph(20, ("a", 30, 5, 7), ("b", 35, 5, 7), ("c", 40, 5, 7), ("d", 45, 5, 7))
    launch(trace, 50, "cudaGraphLaunch")
    trace.kernel("eager", 70, 5, launched_at=60)
    _, launches = decoded(tmp_path, trace)

    assert launches.missing.tolist() == [False, False, True, False]
    assert launches.kernels.tolist() == [3, 3, 3, 1]

    no_graph_recorded = launch(TraceBuilder().kernel("eager", 20, 5, launched_at=10), 50, "cudaGraphLaunch")
    _, launches = decoded(tmp_path, no_graph_recorded)
    assert launches.kernels.tolist() == [1, 100]


def test_a_graph_of_which_only_copies_are_recorded_lacks_its_kernels(tmp_path: Path) -> None:
    trace = TraceBuilder().kernel("eager", 20, 5, launched_at=10).launch_graph(30).memcpy(40, 5)
    trace.events[-1]["args"]["correlation"] = trace.events[-2]["args"]["correlation"]
    assert missing_at(trace, decoded(tmp_path, trace)[1]) == [30]


def test_what_is_launched_while_a_graph_is_captured_does_not_run(tmp_path: Path) -> None:
    """GIVEN captures from 10 to 20, from before the recording to 4, and from 50 on."""
    trace = TraceBuilder().event("cudaStreamEndCapture", "cuda_runtime", 4, 1)
    trace.event("cudaStreamBeginCapture", "cuda_runtime", 10, 1).event("cudaStreamEndCapture", "cuda_runtime", 20, 1)
    trace.event("cudaStreamBeginCapture", "cuda_runtime", 50, 1)
    for at in (2, 6, 12, 18, 30, 55):
        launch(trace, at)
    trace.kernel("on another stream", 15, 5, launched_at=14)
    _, launches = decoded(tmp_path, trace)

    assert missing_at(trace, launches) == [6, 30]
    assert len(launches) == 3


def test_kernels_behind_the_last_recorded_one_may_run_after_the_recording(tmp_path: Path) -> None:
    trace = TraceBuilder().kernel("k0", 10, 50, launched_at=2)
    launch(trace, 1)
    launch(trace, 4)
    launch(trace, 6)
    _, launches = decoded(tmp_path, trace)
    assert launches.later.tolist() == [False, False, True, True]

    trace.event("cudaDeviceSynchronize", "cuda_runtime", 5, 60)
    _, launches = decoded(tmp_path, trace)
    assert launches.later.tolist() == [False, False, False, True], "the host waited until the kernel of 4 had run"


# ---- records that end altogether ----------------------------------------------------------------------------------


def operators(*, launching: range, count: int) -> TraceBuilder:
    """An operator each 10 us; those in `launching` launch a kernel."""
    trace = TraceBuilder()
    for k in range(count):
        trace.op("aten::mm", 10 * k, 8).op("aten::view", 10 * k + 9, 1)
        number = trace.events[-2]["args"]["External id"]
        if k in launching:
            trace.kernel("gemm", 10 * k + 4, 5, launched_at=10 * k + 1)
            for event in trace.events[-2:]:
                event["args"]["External id"] = number
    return trace


def test_records_end_where_operators_no_longer_launch(tmp_path: Path) -> None:
    trace = operators(launching=range(30), count=60)
    events, launches = decoded(tmp_path, trace)
    assert not launches.missing.any()
    assert records_end_ns(events, launches) == trace.wall_ns(291)


def test_one_operator_is_enough_if_the_profiler_says_that_it_stopped(tmp_path: Path) -> None:
    trace = operators(launching=range(30), count=31)
    events, launches = decoded(tmp_path, trace)
    assert records_end_ns(events, launches) is None
    assert records_end_ns(events, launches, stopped=True) == trace.wall_ns(291)
