"""Which copies are missing, and which have no record in a whole recording either. Times are microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tracekit.analysis.per_rank.options import SummaryOptions
from tracekit.analysis.per_rank.summarize import summarize_trace
from tracekit.model.summary import RankSummary
from tracekit.read.decode.portable import decode

STEPS = 3


def training(
    lost: set[int],
    operator: str = "aten::_local_scalar_dense",
    *,
    call: str = "cudaMemcpyAsync",
    waits: str | None = "cudaStreamSynchronize",
    numbered: bool = True,
) -> TraceBuilder:
    """Steps of a kernel and a copy for which the host waits. In the `lost` steps the copy has no record."""
    trace = TraceBuilder()
    for k in range(STEPS):
        at = 100 * k
        trace.step(k, at, 100).kernel("gemm", at + 10, 50, launched_at=at + 5)
        number = 700 + k
        trace.op(operator, at + 20, 60, **{"External id": number})
        ids = {"External id": number, "correlation": number} if numbered else {"correlation": number}
        trace.event(call, "hip_runtime" if call.startswith("hip") else "cuda_runtime", at + 21, 2, args=ids)
        if waits is not None:
            trace.event(waits, "cuda_runtime", at + 24, 50, args=ids | {"correlation": 800 + k})
        if k not in lost:
            copy = {"External id": number, "correlation": number}
            trace.kernel("Memcpy DtoH (Device -> Pageable)", at + 60, 8, category="gpu_memcpy", **copy)
    return trace


def summary(folder: Path, trace: TraceBuilder) -> RankSummary:
    return summarize_trace(decode(trace.write(folder / "rank0.json")), 0, SummaryOptions())


def complete(folder: Path, trace: TraceBuilder) -> list[int]:
    return [step.step for step in summary(folder, trace).steps if step.complete]


@pytest.mark.parametrize("call", ["cudaMemcpyAsync", "hipMemcpyAsync"])
@pytest.mark.parametrize("operator", ["aten::_local_scalar_dense", "aten::copy_"])
def test_a_step_without_a_copy_that_the_host_waited_for_does_not_count(
    tmp_path: Path, operator: str, call: str
) -> None:
    of_rank = summary(tmp_path, training({1}, operator, call=call))
    assert [step.step for step in of_rank.steps if step.complete] == [0, 2]
    (note,) = of_rank.notes
    assert (note.kind, note.severity) == ("lost_device_records", "warning")
    assert note.text == (
        "rank 0: rank0.json: step 1 lacks device records and does not count "
        "(1 of 3 copies that the host waited for are not recorded)"
    )


def test_a_rank_without_its_copies_is_not_measured(tmp_path: Path) -> None:
    of_rank = summary(tmp_path, training({0, 1, 2}))
    assert of_rank.unmeasured == "device records are missing in each of its steps"
    (note,) = of_rank.notes
    assert "its times are n/a and join no comparison (3 of 3 copies" in note.text


@pytest.mark.parametrize("lost", [set(), {1}, {0, 1, 2}])
def test_a_copy_that_the_host_does_not_wait_for_may_have_no_record(tmp_path: Path, lost: set[int]) -> None:
    """It may be between two GPUs."""
    assert complete(tmp_path, training(lost, "aten::copy_", waits=None)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("operator", "call"),
    [
        ("aten::_local_scalar_dense", "cudaMemsetAsync"),
        ("aten::_local_scalar_dense", "cudaMemcpyPeerAsync"),
        ("fbgemm::copy", "cudaMemcpyAsync"),
    ],
)
def test_what_may_copy_nothing_has_no_record(tmp_path: Path, operator: str, call: str) -> None:
    assert complete(tmp_path, training({0, 1, 2}, operator, call=call)) == [0, 1, 2]


def test_a_call_of_an_unknown_operator_tells_nothing(tmp_path: Path) -> None:
    assert complete(tmp_path, training({1}, numbered=False)) == [0, 1, 2]


def test_a_copy_with_another_id_may_be_the_one_that_seems_to_be_missing(tmp_path: Path) -> None:
    trace = training({1}).kernel("Memcpy DtoH (Device -> Pageable)", 160, 8, category="gpu_memcpy")
    assert complete(tmp_path, trace) == [0, 1, 2]
