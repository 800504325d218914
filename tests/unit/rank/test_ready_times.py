"""When a GPU rank was ready for kernels of communication that queued. Times are microseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tracekit.loading.recording import recording_of
from tracekit.model.events import ABSENT
from tracekit.rank.communication_rules import DEFAULT_RULES
from tracekit.rank.ready_times import device_ready_times
from tracekit.read.decode.portable import decode

Ready = Callable[[TraceBuilder], list[tuple[float, float | None]]]

SIDE, NCCL, OTHER_NCCL = 21, 20, 22  # streams; compute is on 7


@pytest.fixture
def ready_us(tmp_path: Path) -> Ready:
    """Return a function that gives, for each communication kernel in order of start, when the rank was ready for it,
    and the end that it queued behind.
    """

    def run(trace: TraceBuilder) -> list[tuple[float, float | None]]:
        decoded = decode(trace.write(tmp_path / "rank0.json", "compact"))
        lanes = recording_of(decoded, DEFAULT_RULES).lanes
        times = device_ready_times(decoded.events, lanes)
        result = []
        for i in lanes.communication_events.start_ns.argsort(kind="stable"):
            queued_ns = int(times.queued_ns[i])
            queued_us = None if queued_ns == ABSENT else (queued_ns - trace.wall_ns(0)) / 1000
            result.append(((int(times.ready_ns[i]) - trace.wall_ns(0)) / 1000, queued_us))
        return result

    return run


def test_a_bucket_that_queues_was_ready_when_its_gradients_were(ready_us: Ready) -> None:
    """GIVEN a bucket whose kernel starts at 500, when the one before it ends THEN its rank was ready at 300 already."""
    trace = TraceBuilder().step(0, 0, 1000)
    trace.kernel("gemm", 10, 190, launched_at=0).nccl("all_reduce", 203, 297, launched_at=2)
    trace.kernel("gemm", 200, 100, launched_at=4).nccl("all_reduce", 502, 98, launched_at=6)
    trace.kernel("gemm", 300, 600, launched_at=8)
    assert ready_us(trace) == [(203, None), (300, 500)]


def test_a_kernel_is_not_ready_before_its_launch(ready_us: Ready) -> None:
    trace = TraceBuilder().step(0, 0, 1000)
    trace.kernel("gemm", 10, 90, launched_at=0).nccl("all_reduce", 103, 397, launched_at=2)
    trace.nccl("all_reduce", 502, 98, launched_at=410)
    assert ready_us(trace) == [(103, None), (410, 500)]


def test_all_gathers_of_fsdp_depend_on_their_copy_in_and_not_on_compute(ready_us: Ready) -> None:
    """GIVEN gathers that start while compute that was launched before them still runs."""
    trace = TraceBuilder().step(0, 0, 2000)
    for unit in range(3):
        trace.kernel("gemm", 100 + 400 * unit, 380, launched_at=10 * unit)
        trace.kernel("copy_in", 110 + 10 * unit, 5, launched_at=10 * unit + 2, stream=SIDE)
        trace.nccl("all_gather", [118, 330, 542][unit], 210, launched_at=10 * unit + 4)
    assert ready_us(trace) == [(118, None), (125, 328), (135, 540)]


@pytest.mark.parametrize(("waits_for_first", "expected"), [(True, (202, None)), (False, (100, 200))])
def test_what_is_launched_after_a_wait_depends_on_what_was_waited_for(
    ready_us: Ready, waits_for_first: bool, expected: tuple[float, float | None]
) -> None:
    """GIVEN two reductions in a row WHEN the stream that computes waits for the first THEN the second depends on it."""
    trace = TraceBuilder().step(0, 0, 1000)
    trace.kernel("gemm", 10, 90, launched_at=0)
    for launched, at in ((5, 102), (9, 202)):
        trace.event("cudaStreamWaitEvent", "cuda_runtime", launched - 1, 0.5, args={"correlation": 500 + launched})
        trace.nccl("all_reduce", at, 98, launched_at=launched)
        if waits_for_first:
            trace.event("cudaStreamWaitEvent", "cuda_runtime", launched + 2, 0.5, args={"correlation": 700 + launched})
    assert ready_us(trace) == [(102, None), expected]


def test_a_reduction_between_replicas_depends_on_the_one_within_them(ready_us: Ready) -> None:
    """GIVEN all-reduces that start when reduce-scatters of another stream end, as in HSDP, and the last of them while
    its stream is busy."""
    trace = TraceBuilder(world_size=4).step(0, 0, 3000)
    shard, replicate = {"group": [0, 1], "description": "shard"}, {"group": [0, 2], "description": "replicate"}
    for unit, at in enumerate((100, 500, 700)):
        launched = 30 * unit
        trace.kernel("gemm", at - 60, 50, launched_at=launched)
        trace.nccl("reduce_scatter", at, 98, launched_at=launched + 3, **shard)
        busy_until = (202, 602, 902)[unit]
        trace.nccl(
            "all_reduce",
            busy_until - 2 if unit < 2 else 904,
            300,
            launched_at=launched + 6,
            stream=OTHER_NCCL,
            **replicate,
        )
    ready = ready_us(trace)
    assert ready[1] == (200, None)
    assert ready[-1] == (798, 900)


def test_a_clock_that_is_set_back_hides_no_dependency(ready_us: Ready) -> None:
    """GIVEN twelve steps of a host that runs far ahead WHEN the clock is set back before the sixth, so that a kernel
    starts before the ones before it end THEN the others still depend on compute."""
    trace = TraceBuilder().step(0, 0, 100_000)
    expected: list[tuple[float, float | None]] = []
    for number in range(12):
        at, launched = 1000 + 700 * number - (900 if number > 5 else 0), 10 * number
        trace.kernel("gemm", at + 10, 190, launched_at=launched)
        trace.nccl("all_reduce", at + 203, 297, launched_at=launched + 2)
        trace.kernel("gemm", at + 200, 100, launched_at=launched + 4)
        trace.nccl("all_reduce", at + 502, 98, launched_at=launched + 6)
        expected += [(at + 203, None), (at + 300, at + 500)]
    assert len(set(ready_us(trace)) & set(expected)) >= len(expected) - 4
