"""In which steps are all compute kernels lost with their launches, and in which did none run? Times are us."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tracekit.analysis.per_rank.options import SummaryOptions
from tracekit.analysis.per_rank.summarize import summarize_trace
from tracekit.model.summary import RankSummary
from tracekit.read.decode.portable import decode

STEPS = 5


def training(
    *,
    without_kernels: Collection[int] = (),
    with_launches: bool = False,
    updated_in: Collection[int] = range(STEPS),
    on_gpu_in: Collection[int] = range(STEPS),
    update: str = "aten::_foreach_add_",
) -> TraceBuilder:
    """Steps of a product, a reduction, and an update of the parameters, each launched by its operator."""
    trace = TraceBuilder()
    for k in range(STEPS):
        at, number = 100 * k, 1000 + 10 * k
        trace.step(k, at, 100).nccl("all_reduce", at + 50, 20, launched_at=at + 8)
        for place, name in enumerate(("aten::mm", update)):
            if name == update and k not in updated_in:
                continue
            at_us, ids = at + 10 * place + 10, {"External id": number + place, "correlation": number + place}
            trace.op(name, at_us, 5, **{"External id": number + place})
            if name == update and k not in on_gpu_in:
                continue
            if k not in without_kernels or with_launches:
                trace.event("cudaLaunchKernel", "cuda_runtime", at_us + 1, 2, args=ids)
            if k not in without_kernels:
                trace.kernel("kernel", at_us + 15, 6, **ids)
    return trace


def summary(folder: Path, trace: TraceBuilder) -> RankSummary:
    return summarize_trace(decode(trace.write(folder / "rank0.json")), 0, SummaryOptions())


def complete(folder: Path, trace: TraceBuilder) -> list[int]:
    return [step.step for step in summary(folder, trace).steps if step.complete]


@pytest.mark.parametrize("update", ["aten::_foreach_add_", "aten::_fused_adamw_"])
def test_a_step_that_updates_parameters_without_a_kernel_does_not_count_nor_does_the_next(
    tmp_path: Path, update: str
) -> None:
    of_rank = summary(tmp_path, training(without_kernels={2}, update=update))
    assert [step.step for step in of_rank.steps if step.complete] == [0, 1, 4]
    (note,) = of_rank.notes
    assert (note.kind, note.severity) == ("lost_device_records", "warning")
    assert note.text == (
        "rank 0: rank0.json: steps 2-3 lack device records and do not count "
        "(no kernel of the operators in step 2 is recorded, and those in other steps have kernels)"
    )


def test_every_kernel_is_there(tmp_path: Path) -> None:
    assert complete(tmp_path, training()) == [0, 1, 2, 3, 4]


def test_a_step_that_updates_nothing_may_compute_nothing(tmp_path: Path) -> None:
    """As one that evaluates an empty batch."""
    assert complete(tmp_path, training(without_kernels={2}, updated_in={0, 1, 3, 4})) == [0, 1, 2, 3, 4]


def test_parameters_on_the_host_are_updated_without_a_kernel(tmp_path: Path) -> None:
    trace = training(without_kernels={2}, on_gpu_in=())
    assert complete(tmp_path, trace) == [0, 1, 2, 3, 4]


def test_parameters_of_which_some_are_on_the_host_tell_nothing(tmp_path: Path) -> None:
    trace = training(without_kernels={2}, on_gpu_in={0, 1, 2, 4})
    assert complete(tmp_path, trace) == [0, 1, 2, 3, 4]


def test_what_a_graph_captures_does_not_run_in_that_step(tmp_path: Path) -> None:
    trace = training(without_kernels={2}, with_launches=True)
    trace.event("cudaStreamBeginCapture", "cuda_runtime", 202, 1, args={"correlation": 5001})
    trace.event("cudaStreamEndCapture", "cuda_runtime", 290, 1, args={"correlation": 5002})
    assert complete(tmp_path, trace) == [0, 1, 2, 3, 4]
