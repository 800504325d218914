"""Why a rank was idle, on built traces with causes known by hand. Times are microseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.builders import TraceBuilder
from tests.unit.report.test_invariants import TRACES
from tracekit.explain.step_time.breakdown import step_parts
from tracekit.loading.recording import recording_of
from tracekit.model.events import DecodedTrace
from tracekit.rank.communication_rules import DEFAULT_RULES
from tracekit.rank.idle_causes import IDLE_CAUSES, idle_by_cause
from tracekit.rank.point_to_point import rank_messages
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.read.decode.portable import decode

Idle = Callable[[TraceBuilder], dict[str, float]]


def recorded_steps(trace: DecodedTrace) -> RecordedSteps:
    recording = recording_of(trace, DEFAULT_RULES)
    return RecordedSteps(
        trace=trace,
        lanes=recording.lanes,
        phases=recording.phases,
        steps=tuple(step_parts(recording.lanes)),
        messages=rank_messages(trace, recording.lanes),
    )


@pytest.fixture
def idle_us(tmp_path: Path) -> Idle:
    """Return the idle time of each cause that has any."""

    def run(trace: TraceBuilder) -> dict[str, float]:
        causes = idle_by_cause(recorded_steps(decode(trace.write(tmp_path / "rank0.json"))))
        return {cause: time.len_ns / 1000 for cause, time in causes.items() if len(time)}

    return run


def runtime_call(trace: TraceBuilder, name: str, at_us: float, for_us: float) -> None:
    trace.event(name, "cuda_runtime", at_us, for_us, args={"correlation": 10_000 + round(at_us)})


def busy_until(trace: TraceBuilder, end_us: int) -> TraceBuilder:
    """A kernel from 10 to `end_us`, of a step from 0 to 1000 whose host launches the next kernel when it says."""
    return trace.step(3, 0, 1000).kernel("gemm", 10, end_us - 10, launched_at=0)


def test_a_device_without_work_waits_for_its_host(idle_us: Idle) -> None:
    """GIVEN launches at 0 and 300, and kernels 10-100 and 306-1000 THEN all gaps are the host's, latencies included."""
    trace = busy_until(TraceBuilder(), 100).kernel("gemm", 306, 694, launched_at=300)
    assert idle_us(trace) == {"host_bound": 10 + 206}


def test_a_gap_before_a_kernel_that_was_launched_long_ago_is_one_between_kernels(idle_us: Idle) -> None:
    trace = busy_until(TraceBuilder(), 100).kernel("gemm", 130, 870, launched_at=20)
    assert idle_us(trace) == {"host_bound": 10, "kernel_gap": 30}


def test_a_queue_that_stands_still_for_long_is_held_up_by_what_is_not_recorded(idle_us: Idle) -> None:
    """GIVEN kernels launched at 20 and 21 that begin at 300 and 350, 200 and 10 us after the one before."""
    trace = busy_until(TraceBuilder(), 100).kernel("gemm", 300, 40, launched_at=20)
    trace.kernel("gemm", 350, 650, launched_at=22)
    assert idle_us(trace) == {"host_bound": 10, "other": 200, "kernel_gap": 10}


def test_kernels_of_a_graph_are_queued_by_its_launch(idle_us: Idle) -> None:
    """GIVEN a graph launched at 0 for 5 us, whose kernels run at 10-40, 60-90 and 100-1000."""
    trace = TraceBuilder().step(3, 0, 1000)
    trace.launch_graph(0, ("a", 10, 30, 7), ("b", 60, 30, 7), ("c", 100, 900, 7))
    assert idle_us(trace) == {"host_bound": 10, "kernel_gap": 20 + 10}


def test_idle_time_behind_a_wait_for_the_device_is_the_waits(idle_us: Idle) -> None:
    """GIVEN a host that waits from 40 to 402 while its device computes until 400 THEN what it launches late by that
    is synchronisation: the gaps at 400-420 and 500-520. At 40 it could have launched the kernels without a gap.
    """
    trace = busy_until(TraceBuilder(), 400)
    runtime_call(trace, "cudaStreamSynchronize", 40, 362)
    trace.kernel("gemm", 420, 80, launched_at=415).kernel("gemm", 520, 480, launched_at=515)
    assert idle_us(trace) == {"host_bound": 10, "synchronisation": 40}


def test_a_host_that_does_something_else_for_long_behind_a_wait_is_the_cause(idle_us: Idle) -> None:
    """GIVEN a wait from 20 to 402, and a host of which nothing is recorded from then to 815."""
    trace = busy_until(TraceBuilder(), 400)
    runtime_call(trace, "cudaStreamSynchronize", 20, 382)
    trace.kernel("gemm", 820, 180, launched_at=815)
    assert idle_us(trace) == {"host_bound": 10 + 418, "synchronisation": 2}


@pytest.mark.parametrize(
    ("name", "category", "cause"),
    [
        ("cudaMalloc", "cuda_runtime", "allocator"),
        ("hipFree", "cuda_runtime", "allocator"),
        ("cuMemMap", "cuda_driver", "allocator"),
        ("cudaHostAlloc", "cuda_runtime", "allocator"),
        ("cudaDeviceSynchronize", "cuda_runtime", "synchronisation"),
        ("hipMemcpyWithStream", "cuda_runtime", "synchronisation"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", "data"),
        ("tracekit.data", "cpu_op", "data"),
        ("tracekit.gc", "cpu_op", "garbage_collection"),
        ("Python GC", "python_function", "garbage_collection"),
        ("aten::_foreach_mul_", "cpu_op", "host_compute"),
        ("Optimizer.step#DeepSpeedCPUAdam.step", "user_annotation", "host_compute"),
        ("MyFunctionBackward", "cpu_op", "host_bound"),
        ("tracekit.checkpoint", "cpu_op", "checkpoint"),
        ("torch/serialization.py(900): save", "python_function", "checkpoint"),
        ("Activity Buffer Request", "overhead", "other"),
        ("my_logging", "user_annotation", "host_bound"),
    ],
)
def test_what_the_host_did_while_nothing_was_queued(idle_us: Idle, name: str, category: str, cause: str) -> None:
    """GIVEN a host that is in a call from 200 to 500, and a device without work from 100 to 506."""
    trace = busy_until(TraceBuilder(), 100)
    trace.event(name, category, 200, 300, args={"correlation": 888} if category.startswith("cuda") else {})
    trace.kernel("gemm", 506, 494, launched_at=500)
    expected = {"host_bound": 10 + 106.0}
    expected[cause] = expected.get(cause, 0) + 300
    assert idle_us(trace) == expected


@pytest.mark.parametrize("begins_at", [200, None])
def test_kernels_of_a_capture_do_not_run(idle_us: Idle, begins_at: int | None) -> None:
    """GIVEN a graph that is captured until 500, in which the host allocates and launches what does not run."""
    trace = busy_until(TraceBuilder(), 100)
    if begins_at is not None:
        runtime_call(trace, "cudaStreamBeginCapture", begins_at, 2)
    runtime_call(trace, "cudaMalloc", 250, 40)
    runtime_call(trace, "cudaLaunchKernel", 300, 5)
    runtime_call(trace, "cudaStreamEndCapture", 495, 5)
    trace.kernel("gemm", 506, 494, launched_at=500)
    before = 0 if begins_at is None else 10 + 100
    assert idle_us(trace) == {"host_bound": before + 6, "graph_capture": 410 - before}


def test_a_loader_while_work_is_queued_explains_nothing(idle_us: Idle) -> None:
    trace = busy_until(TraceBuilder(), 100).kernel("gemm", 150, 850, launched_at=20)
    trace.label("enumerate(DataLoader)#x.__next__", 30, 500)
    assert idle_us(trace) == {"host_bound": 10, "kernel_gap": 50}


def test_time_between_two_calls_of_the_step(idle_us: Idle) -> None:
    """GIVEN steps 0-300 and 600-1000 of the decorated function, and kernels 10-200 and 610-1000."""
    trace = TraceBuilder().step(3, 0, 300).step(4, 600, 400).capture()
    trace.kernel("gemm", 10, 190, launched_at=0).kernel("gemm", 610, 390, launched_at=600)
    assert idle_us(trace) == {"host_bound": 10 + 100 + 10, "between_steps": 300}


def assert_exact(recorded: RecordedSteps) -> None:
    """The causes are disjoint, and in each step they sum to its idle time."""
    causes = recorded.once(idle_by_cause)
    assert tuple(causes) == IDLE_CAUSES
    for step in recorded.steps:
        window = [time.clip(step.start_ns, step.start_ns + step.step_ns) for time in causes.values()]
        assert sum(time.len_ns for time in window) == step.idle_ns
    union = recorded.lanes.idle - recorded.lanes.idle
    for time in causes.values():
        assert (union & time).len_ns == 0
        union = union | time
    assert union == recorded.lanes.idle


@given(trace=TRACES)
@settings(max_examples=60, deadline=None)
def test_the_causes_sum_to_the_idle_time(trace: TraceBuilder, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = trace.write(tmp_path_factory.getbasetemp() / "idle.json", "compact")
    assert_exact(recorded_steps(decode(path)))


@pytest.mark.parametrize(
    "name",
    [
        "dlrm_8xV100/worker7_step_12.1694128201553.pt.trace.json.gz",
        "single_rank/a100_ddp_rank0_of_2.json.gz",
        "single_rank/b200_tp8_custom_allreduce.json.gz",
        "single_rank/mi300x_resnet_rank0_of_8.json.gz",
        "gloo_rank34_of_300/rank-34.json.gz",
        "two_of_128/rank-0.json.gz",
    ],
)
def test_the_causes_sum_to_the_idle_time_of_real_traces(name: str, real_traces: Path) -> None:
    assert_exact(recorded_steps(decode(real_traces / name)))
