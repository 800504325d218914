"""Communication, overlap and exposed time of expert parallelism, against arithmetic a nanosecond at a time.

The expected values come from arrays with an entry for each nanosecond of the recording, and from nothing of tracekit.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from tests.builders import TraceBuilder
from tests.summarized_trace import summarize_trace
from tracekit.explain.communication.tables import COMMUNICATION_SUMS
from tracekit.explain.model_parallel.tables import EXPERT_COMMUNICATION_SUMS, ExpertCommunicationSum
from tracekit.loading.options import SummaryOptions
from tracekit.model.summary import RankSummary
from tracekit.read.decode.portable import decode

STEP_NS = 12_000
STEPS = 3
# DeepEP, the same in a namespace of DeepSeek's, of UCCL, and of somebody else.
NAMESPACES = ("deep_ep::intranode", "dpsk::ep::internode", "uccl::internode_ll", "acme::moe::comm::internode")
COMPUTE = (
    "void moe_combine<float>(float*)",
    "void flash_fwd_splitkv_combine_kernel<F>(Params)",
    "void cutlass::device_kernel<moe::dispatch::Gemm>(Params)",
    "void at::native::elementwise_kernel<128, 4, dispatch>(int)",
)


@dataclass(frozen=True)
class Kernel:
    """`direction` is None for one that computes."""

    name: str
    stream: int
    start_ns: int
    end_ns: int
    launch_ns: int
    direction: str | None


def exchanges(rng: random.Random, namespace: str, stream: int, step: int) -> list[Kernel]:
    """Notifications, dispatches and combines, one after the other on their stream, as DeepEP launches them."""
    kernels: list[Kernel] = []
    now_ns = step * STEP_NS + rng.randrange(1000, 3000)
    while True:
        direction = rng.choice(("dispatch", "combine"))
        notification = rng.choice(("cached_notify", f"cached_notify_{direction}", None))
        exchange = []
        for function in filter(None, (notification, direction)):
            end_ns = now_ns + rng.randrange(1, 1500)
            launch_ns = step * STEP_NS + rng.randrange(100, 900)
            name = f"void {namespace}::{function}<false, 8>(int4*, float*)"
            exchange.append(Kernel(name, stream, now_ns, end_ns, launch_ns, direction))
            now_ns = end_ns + rng.choice((0, rng.randrange(600)))
        if exchange[-1].end_ns > (step + 1) * STEP_NS - 500:
            return kernels
        kernels += exchange


def computing(rng: random.Random, stream: int, step: int) -> list[Kernel]:
    kernels = []
    now_ns = step * STEP_NS + rng.randrange(1000, 2000)
    while (end_ns := now_ns + rng.randrange(1, 2500)) <= (step + 1) * STEP_NS - 500:
        launch_ns = step * STEP_NS + rng.randrange(100, 900)
        kernels.append(Kernel(rng.choice(COMPUTE), stream, now_ns, end_ns, launch_ns, None))
        now_ns = end_ns + rng.choice((0, rng.randrange(1500)))
    return kernels


def us(ns: int) -> Decimal:
    return Decimal(ns) / 1000


def summary_of(folder: Path, kernels: Sequence[Kernel], steps: int = STEPS) -> RankSummary:
    trace = TraceBuilder()
    for step in range(steps):
        trace.step(step, us(step * STEP_NS), us(STEP_NS))
    for kernel in kernels:
        duration = us(kernel.end_ns - kernel.start_ns)
        trace.kernel(kernel.name, us(kernel.start_ns), duration, stream=kernel.stream, launched_at=us(kernel.launch_ns))
    return summarize_trace(decode(trace.write(folder / "rank0.json")), 0, SummaryOptions())


def running(kernels: Sequence[Kernel]) -> np.ndarray:
    """Whether any of them runs, at each nanosecond."""
    result = np.zeros(STEPS * STEP_NS, dtype=np.bool_)
    for kernel in kernels:
        result[kernel.start_ns : kernel.end_ns] = True
    return result


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("seed", range(8))
def test_times_are_those_of_arithmetic_a_nanosecond_at_a_time(tmp_path: Path, namespace: str, seed: int) -> None:
    """GIVEN two streams of exchanges and two of compute, at random THEN times of steps and directions are exact."""
    rng = random.Random(f"{namespace} {seed}")
    kernels: list[Kernel] = []
    for step in range(STEPS):
        for stream in (27, 28):
            kernels += exchanges(rng, namespace, stream, step)
        for stream in (7, 23):
            kernels += computing(rng, stream, step)
    summary = summary_of(tmp_path, kernels)
    communicates = running([kernel for kernel in kernels if kernel.direction is not None])
    computes = running([kernel for kernel in kernels if kernel.direction is None])
    assert len(summary.steps) == STEPS
    for number, step in enumerate(summary.steps):
        window = slice(number * STEP_NS, (number + 1) * STEP_NS)
        inside, hidden = communicates[window], computes[window]
        assert step.step_ns == STEP_NS
        assert step.comm_ns == int(inside.sum())
        assert step.overlapped_comm_ns == int((inside & hidden).sum())
        assert step.exposed_comm_ns == int((inside & ~hidden).sum())
        assert step.compute_ns == int(hidden.sum())
        assert step.idle_ns == int((~inside & ~hidden).sum())
    rows = {row.direction: row for row in summary[EXPERT_COMMUNICATION_SUMS]}
    for direction in ("dispatch", "combine"):
        members = [kernel for kernel in kernels if kernel.direction == direction]
        if not members:
            assert direction not in rows
            continue
        time, row = running(members), rows[direction]
        assert row.count == len(members)
        assert row.total_ns == int(time.sum())
        assert row.overlapped_ns == int((time & computes).sum())
    exposed_ns = sum(step.exposed_comm_ns for step in summary.steps)
    assert sum(row.exposed_ns for row in rows.values()) == exposed_ns
    assert {row.kind for row in summary[COMMUNICATION_SUMS]} <= {"dispatch", "combine"}


def rows_of(folder: Path, trace: TraceBuilder) -> list[ExpertCommunicationSum]:
    return list(
        summarize_trace(decode(trace.write(folder / "rank0.json")), 0, SummaryOptions())[EXPERT_COMMUNICATION_SUMS]
    )


def test_without_exchanges_of_tokens_there_is_no_row(tmp_path: Path) -> None:
    trace = (
        TraceBuilder().step(0, 0, 100).kernel("gemm", 10, 20, launched_at=1).nccl("all_reduce", 30, 9, launched_at=5)
    )
    assert rows_of(tmp_path, trace) == []


@pytest.mark.parametrize("label", ["tracekit.pp:{kind}.s0.mb{microbatch}", "PP:0{kind}{microbatch}"])
def test_microbatches_come_from_the_labels_of_a_pipeline(tmp_path: Path, label: str) -> None:
    """GIVEN forwards and backwards of two microbatches, each with a dispatch, and one dispatch outside of them. The
    label is copied to the device, where it stands for other times.
    """
    trace = TraceBuilder().step(0, 0, 200).kernel("gemm", 0, 5, launched_at=0)
    for number, (kind, microbatch) in enumerate((("F", 0), ("F", 1), ("B", 0), ("B", 1))):
        name = label.format(kind=kind, microbatch=microbatch)
        trace.label(name, 10 + 20 * number, 15)
        trace.event(name, "gpu_user_annotation", 100 - 20 * number, 15, pid=0, thread=7, args={})
        launched_at = 12 + 20 * number
        name = "void deep_ep::intranode::dispatch<8>(int4*)"
        trace.kernel(name, launched_at + 80, 4 + number, stream=27, launched_at=launched_at)
    trace.kernel("void deep_ep::intranode::combine<8>(int4*)", 180, 10, stream=27, launched_at=95)
    rows = {(row.direction, row.microbatch): (row.count, row.total_ns) for row in rows_of(tmp_path, trace)}
    assert rows == {("dispatch", 0): (2, 10_000), ("dispatch", 1): (2, 12_000), ("combine", None): (1, 10_000)}


def test_a_launch_during_actions_on_several_microbatches_has_none(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 200).label("PP:0F1", 10, 30).label("PP:0B0", 20, 30)
    trace.kernel("void deep_ep::intranode::dispatch<8>(int4*)", 60, 5, stream=27, launched_at=25)
    assert [row.microbatch for row in rows_of(tmp_path, trace)] == [None]


def test_of_two_all_to_alls_the_first_is_a_dispatch_and_the_second_a_combine(tmp_path: Path) -> None:
    """Their sizes are known: of the larger of input and output. Compute hides 5 of the 10 microseconds of each."""
    trace = TraceBuilder(world_size=4).step(0, 0, 200)
    for at, received, sent in ((20, 300, 180), (60, 180, 300)):
        elements = {"In msg nelems": sent, "Out msg nelems": received}
        trace.nccl("all_to_all", at, 10, launched_at=at - 10, description="ep", **elements)
        trace.kernel("gemm", at + 5, 20, launched_at=at - 5)
    first, second = sorted(rows_of(tmp_path, trace), key=lambda row: row.direction, reverse=True)
    assert (first.direction, first.count, first.size_bytes) == ("dispatch", 1, 1200)
    assert (second.direction, second.count, second.size_bytes) == ("combine", 1, 1200)
    assert (first.total_ns, first.exposed_ns) == (second.total_ns, second.exposed_ns) == (10_000, 5_000)
