"""The checks of `make gpu` on traces that are written by hand: they pass for the right recording, and only for that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.gpu import test_capture_overhead as capture_overhead
from tests.gpu import test_graphs as graphs
from tests.gpu import test_kernel_classification as kernel_classification
from tests.gpu import test_nccl as nccl
from tests.gpu import test_planted_delays as planted_delays
from tests.gpu import test_streams as streams
from tests.gpu import test_synchronisation as synchronisation
from tests.gpu.recordings import DeviceRecording
from tests.gpu_jobs.job import simulate
from tests.gpu_jobs.spec import Defect, JobSpec
from tests.integration.recorded import result_of

SPIN = "at::cuda::(anonymous namespace)::spin_kernel(long)"
STEP_US = 1000
STEPS = range(3)
SIMULATED_STEPS, BUCKETS = 6, 4
CLASSIFIED = {"copies_of_step": 3, "least_kernels_of_step": 4, "copies_may_be_kernels": False}

Check = Callable[..., None]


class Recorder:
    """The fixtures of a check: the recording is the one that was written, and figures are kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.measured: dict[str, float] = {}

    def run(self, check: Check, trace: TraceBuilder, **facts: Any) -> dict[str, float]:
        trace.capture().write_capture(self.folder)
        check(lambda *_: DeviceRecording(self.folder, facts), lambda **figures: self.measured.update(figures))
        return self.measured


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


def steps(of_step: Callable[[TraceBuilder, float], Any]) -> TraceBuilder:
    trace = TraceBuilder(0, 1)
    for number in STEPS:
        at_us = STEP_US * number
        of_step(trace.step(number, at_us, STEP_US), at_us)
    return trace


def kernel(trace: TraceBuilder, name: str, at_us: float, for_us: float, **how: Any) -> TraceBuilder:
    return trace.kernel(name, at_us, for_us, launched_at=at_us - 5, **how)


def classified(trace: TraceBuilder, at_us: float) -> None:
    trace.memcpy(at_us + 20, 30, launched_at=at_us + 10)
    kernel(trace, "sm90_xmma_gemm_f32f32", at_us + 60, 40)
    kernel(trace, "void at::native::vectorized_elementwise_kernel<4, relu>(int)", at_us + 110, 10)
    trace.memcpy(at_us + 130, 10, launched_at=at_us + 120)
    kernel(trace, SPIN, at_us + 150, 500)
    kernel(trace, "Memset (Device)", at_us + 660, 2, category="gpu_memset", launched_by="cudaMemsetAsync")
    kernel(trace, "void at::native::reduce_kernel<512, 1, ReduceOp>(int)", at_us + 670, 10)
    trace.memcpy(at_us + 690, 5, launched_at=at_us + 685)


def test_classes_of_kernels_and_copies(recorder: Recorder) -> None:
    check = kernel_classification.test_kernels_compute_and_transfers_are_copies

    measured = recorder.run(
        check,
        steps(classified),
        **CLASSIFIED,
    )

    assert measured == {"kernels": 12, "compute_share": pytest.approx(0.56, abs=0.01)}


def test_communication_on_one_device_is_noticed(recorder: Recorder) -> None:
    trace = steps(classified)
    kernel(trace, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 800, 50)

    with pytest.raises(AssertionError):
        recorder.run(
            kernel_classification.test_kernels_compute_and_transfers_are_copies,
            trace,
            **CLASSIFIED,
        )


def two_streams(copy_at_us: float) -> TraceBuilder:
    """On stream 7 a kernel from 100 to 900 us of the step, on stream 13 a copy of 100 us and a kernel of 400 us."""

    def of_step(trace: TraceBuilder, at_us: float) -> None:
        kernel(trace, SPIN, at_us + 100, 800)
        trace.memcpy(at_us + copy_at_us, 100, stream=13, launched_at=at_us + 12)
        kernel(trace, SPIN, at_us + 300, 400, stream=13)

    return steps(of_step)


def test_overlapping_streams(recorder: Recorder) -> None:
    measured = recorder.run(streams.test_what_overlaps_on_two_streams_counts_once, two_streams(150), spins_of_step=2)

    assert measured == pytest.approx({"compute_ms": 2.4, "hidden_compute_ms": 1.2})


def test_a_hidden_copy(recorder: Recorder) -> None:
    measured = recorder.run(streams.test_a_copy_beside_compute_is_not_exposed, two_streams(150))

    assert measured == {"copy_ms": pytest.approx(0.3), "exposed_copy_ms": 0.0}


def test_a_copy_that_is_half_exposed_fails(recorder: Recorder) -> None:
    with pytest.raises(AssertionError):
        recorder.run(streams.test_a_copy_beside_compute_is_not_exposed, two_streams(50))


def waiting_host(call: str) -> TraceBuilder:
    """Three kernels of 200 us; the host waits for the first and the second, then works for 100 us, then launches."""

    def of_step(trace: TraceBuilder, at_us: float) -> None:
        for turn, waits in enumerate((call, "cudaEventSynchronize", call)):
            begin_us = at_us + 310 * turn
            trace.kernel(SPIN, begin_us + 5, 200, launched_at=begin_us)
            trace.event(waits, "cuda_runtime", begin_us + 2, 205, args={})
            for operator in range(10):
                trace.op("aten::add", begin_us + 208 + 10 * operator, 9)

    return steps(of_step)


def test_idle_time_behind_synchronisation(recorder: Recorder) -> None:
    check = synchronisation.test_idle_time_behind_a_synchronising_call_has_it_as_its_cause

    measured = recorder.run(check, waiting_host("cudaDeviceSynchronize"), spins_of_step=3)

    assert measured["gaps_ms"] == pytest.approx(3 * 2 * 0.11)
    assert measured["synchronisation_ms"] > measured["gaps_ms"]  # also what is left of each step


def test_a_host_that_does_not_wait_fails(recorder: Recorder) -> None:
    with pytest.raises(AssertionError):
        recorder.run(
            synchronisation.test_idle_time_behind_a_synchronising_call_has_it_as_its_cause,
            waiting_host("cudaLaunchHostFunc"),
            spins_of_step=3,
        )


def replaying(replays: int, kernels: int = 5) -> TraceBuilder:
    def of_step(trace: TraceBuilder, at_us: float) -> None:
        for replay in range(replays):
            begin_us = at_us + 20 + 400 * replay
            additions = [("vectorized_elementwise_kernel", begin_us + 310 + 5 * n, 4, 7) for n in range(kernels - 1)]
            trace.launch_graph(begin_us - 10, (SPIN, begin_us, 300, 7), *additions)

    return steps(of_step)


def test_replayed_graphs(recorder: Recorder) -> None:
    measured = recorder.run(
        graphs.test_every_kernel_of_a_replayed_graph_is_recorded,
        replaying(2),
        replays_of_step=2,
        kernels_of_graph=5,
        total=56.0,
        expected_total=56.0,
    )

    assert measured == {"replays": 6, "compute_ms": pytest.approx(6 * (0.3 + 4 * 0.004))}


def test_a_replayed_graph_that_lacks_a_kernel_fails(recorder: Recorder) -> None:
    with pytest.raises(AssertionError):
        recorder.run(
            graphs.test_every_kernel_of_a_replayed_graph_is_recorded,
            replaying(2, kernels=4),
            replays_of_step=2,
            kernels_of_graph=5,
            total=56.0,
            expected_total=56.0,
        )


def test_a_graph_captured_in_the_window(recorder: Recorder) -> None:
    facts = {"replays": 3, "totals": [16.0, 12.0], "expected_totals": [16.0, 12.0]}

    trace = replaying(1).event("cudaStreamBeginCapture", "cuda_runtime", 1410, 2, args={})
    for at_us in (1420, 1430):  # these launch nothing
        trace.event("cudaLaunchKernel", "cuda_runtime", at_us, 1, args={"correlation": 900_000 + at_us})
    trace.event("cudaStreamEndCapture", "cuda_runtime", 1440, 2, args={})

    assert recorder.run(graphs.test_capturing_a_graph_within_a_window_loses_nothing, trace, **facts) == {"kernels": 15}


@pytest.mark.parametrize(("is_capturing", "fails"), [(False, False), (True, True)])
def test_edges_of_windows(is_capturing: bool, fails: bool, recorder: Recorder) -> None:
    edges = [("prepare", False), ("start", False), ("stop", is_capturing)]
    facts = {"edges": edges, "total": 14.0, "expected_total": 14.0, "warnings": []}
    check = graphs.test_no_window_opens_or_closes_while_a_graph_is_captured

    if fails:
        with pytest.raises(AssertionError):
            recorder.run(check, replaying(1), **facts)
    else:
        assert recorder.run(check, replaying(1), **facts) == {"edges": 3, "recorded_steps": 3}


def test_cost_of_recording(recorder: Recorder) -> None:
    check = capture_overhead.test_every_launch_of_a_recorded_step_is_there_and_its_cost_is_measured

    measured = recorder.run(check, replaying(1), steps=3, kernels=15, plain_ms=0.5, recorded_ms=0.6)

    assert measured == {"plain_step_ms": 0.5, "recorded_step_ms": 0.6, "stated_overhead_ms": 0.001}


@pytest.mark.parametrize(("planted_ms", "fails"), [(0.3, False), (0.5, True)])
def test_planted_compute(planted_ms: float, fails: bool, recorder: Recorder) -> None:
    def check(train: Check, measured: Check) -> None:
        planted_delays.test_planted_compute_is_found_on_one_gpu("ddp", (), planted_ms, train, measured)

    if fails:
        with pytest.raises(AssertionError):
            recorder.run(check, replaying(1))
    else:
        assert recorder.run(check, replaying(1)) == {"planted_ms": 0.3, "found_ms": pytest.approx(0.3)}


def test_a_late_host(recorder: Recorder) -> None:
    """GIVEN a step of 25 ms, in which nothing is queued for 20 ms."""
    trace = TraceBuilder(0, 1)
    for number in STEPS:
        at_us = 25_000 * number
        kernel(trace.step(number, at_us, 25_000), "gemm", at_us + 10, 2_000)
        kernel(trace, "gemm", at_us + 22_000, 2_500)

    def check(train: Check, measured: Check) -> None:
        planted_delays.test_a_late_host_is_idle_time_of_one_gpu("host", "host_bound", train, measured)

    assert recorder.run(check, trace)["found_ms"] >= 19


class Simulated(DeviceRecording):
    """The recording of a simulated job of two ranks, whose traces have none of the capture's metadata."""

    @property
    def steps(self) -> int:
        return SIMULATED_STEPS

    @property
    def result(self) -> dict[str, Any]:
        return result_of(self.out) | {"bucket_map": [{}] * BUCKETS}  # which only the capture records


@pytest.mark.parametrize(("slow_rank", "fails"), [(1, False), (0, True)])
def test_a_slow_rank_of_two(slow_rank: int, fails: bool, tmp_path: Path) -> None:
    defect = Defect(cause="compute", ranks=(slow_rank,), delay_us=20_000)
    job = JobSpec(family="ddp", dp=2, steps=SIMULATED_STEPS, buckets=BUCKETS, layer_us=2000, defect=defect)
    recording = Simulated(simulate(job).write(tmp_path), {})
    measured: dict[str, float] = {}

    def check() -> None:
        nccl.test_the_slow_rank_of_ddp_is_named_and_the_other_waits_for_it(
            lambda *_, ranks: recording, lambda **figures: measured.update(figures)
        )

    if fails:
        with pytest.raises(AssertionError):
            check()
    else:
        check()
        assert measured["found_ms"] == pytest.approx(20, rel=0.1)
