"""To which step an event belongs, and which steps are complete in a file that was cut off. Times are microseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.summarized_trace import summarize_trace
from tracekit.explain.communication.tables import COMMUNICATION_SUMS
from tracekit.loading.options import StepSelection, SummaryOptions
from tracekit.model.summary import RankSummary
from tracekit.read.decode.portable import decode

Summarize = Callable[..., RankSummary]


@pytest.fixture
def summarize(tmp_path: Path) -> Summarize:
    """Summarise a trace; with `cut_at`, the file ends before the event of this name."""

    def run(trace: TraceBuilder, *, cut_at: str | None = None, **options: Any) -> RankSummary:
        path = trace.write(tmp_path / f"rank{trace.rank}.json", "compact")
        if cut_at is not None:
            text = path.read_bytes()
            begin = text.rindex(b"{", 0, text.index(f'"name":"{cut_at}"'.encode()))
            path.write_bytes(text[:begin])
        return summarize_trace(decode(path), trace.rank, SummaryOptions(**options))

    return run


def completed(summary: RankSummary) -> list[bool]:
    return [step.complete for step in summary.steps]


def counts(summary: RankSummary) -> dict[str, tuple[int, int]]:
    """Return count and total ns of each kind."""
    return {row.kind: (row.count, row.total_ns) for row in summary[COMMUNICATION_SUMS]}


# ---- files that were cut off -------------------------------------------------------------------------------------


def in_order_of_time() -> TraceBuilder:
    trace = TraceBuilder()
    for k in range(4):
        trace.step(k, 100 * k, 100).backward("MmBackward0", 100 * k + 10, 20).op(f"end {k}", 100 * k + 90, 5)
    return trace


def test_a_cut_file_in_order_of_time_keeps_its_complete_steps(summarize: Summarize) -> None:
    assert completed(summarize(in_order_of_time(), cut_at="end 2")) == [True, True, False]
    captured = in_order_of_time().capture()
    assert completed(summarize(captured, cut_at="end 1")) == [True, False, False, False]


def test_launched_kernels_that_are_cut_off_make_their_step_incomplete(summarize: Summarize) -> None:
    """GIVEN a host that runs steps ahead of its device, and events in order of time WHEN the file is cut THEN a
    step with a missing kernel is incomplete, even if the file reaches beyond the step's window.
    """
    trace = TraceBuilder()
    for k in range(3):
        trace.step(k, 10 * k, 10).kernel(f"k{k}", 5 + 30 * k, 30, launched_at=1 + 10 * k)
    trace.nccl("all_reduce", 70, 10, launched_at=13)
    trace.events.sort(key=lambda event: event["ts"])
    assert completed(summarize(trace)) == [True] * 3
    assert completed(summarize(trace, cut_at="k2")) == [True, False, False]
    trace.op("aten::late", 66, 1)
    trace.events.sort(key=lambda event: event["ts"])
    assert completed(
        summarize(trace, cut_at="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    ) == [True, False, False]


def gpu_rank_without_kernels() -> TraceBuilder:
    return TraceBuilder().step(0, 0, 100).op("aten::mm", 10, 20).kernel("gone", 20, 30, launched_at=10)


def test_a_gpu_rank_with_all_kernels_cut_off_is_no_cpu_rank(summarize: Summarize) -> None:
    with_device_name = gpu_rank_without_kernels()
    with_device_name.header["deviceProperties"] = [{"id": 0, "name": "NVIDIA A100"}]
    summary = summarize(with_device_name, cut_at="gone")
    assert (summary.device, summary.is_measured, completed(summary)) == ("gpu", False, [])
    assert summarize(gpu_rank_without_kernels(), cut_at="gone").device == "gpu", "its launch shows it"
    assert summarize(with_device_name).device == "gpu"


# ---- to which step an event belongs -------------------------------------------------------------------------------


def test_a_collective_launched_in_a_step_is_counted_there_wherever_it_runs(summarize: Summarize) -> None:
    trace = TraceBuilder().step(0, 0, 100).step(1, 100, 100)
    trace.kernel("gemm", 5, 10, launched_at=1).nccl("all_reduce", 120, 10, launched_at=90)
    trace.kernel("gemm", 150, 10, launched_at=101)
    assert counts(summarize(trace, steps=StepSelection(stop=1))) == {"all_reduce": (1, 0)}
    assert counts(summarize(trace, steps=StepSelection(first=1))) == {"all_reduce": (0, 10_000)}


def test_communication_issued_after_the_last_step_belongs_to_no_step(summarize: Summarize) -> None:
    trace = TraceBuilder().step(0, 0, 100).op("aten::mm", 10, 50).gloo("all_reduce", 62, 20, issued_at=60)
    trace.gloo("all_reduce", 202, 20, issued_at=200).gloo("all_gather", 302, 20, issued_at=300)
    assert counts(summarize(trace)) == {"all_reduce": (1, 20_000)}


def test_a_last_step_with_only_later_kernels_is_incomplete(summarize: Summarize) -> None:
    trace = TraceBuilder().step(0, 0, 100).step(1, 100, 100)
    trace.kernel("gemm", 20, 10, launched_at=10).kernel("gemm", 320, 10, launched_at=310)
    assert completed(summarize(trace)) == [True, False]


@pytest.mark.parametrize("steps", [True, False])
def test_a_whole_window_counts_kernels_launched_before_it(summarize: Summarize, steps: bool) -> None:
    trace = TraceBuilder()
    if steps:
        trace.step(0, 0, 50).step(1, 50, 50)
    trace.nccl("all_gather", 1, 10).nccl("all_reduce", 20, 10, launched_at=5).kernel("gemm", 30, 5, launched_at=6)
    summary = summarize(trace, steps=StepSelection(whole=True))
    assert counts(summary) == {"all_gather": (1, 10_000), "all_reduce": (1, 10_000)}
