"""Kernels that no rule matches but that look like communication. Times are microseconds."""

from __future__ import annotations

from pathlib import Path

from tests.builders import TraceBuilder
from tests.unit.explain.summarized import summary_of
from tracekit.explain.communication.tables import COMMUNICATION_SUMS


def kinds(folder: Path, trace: TraceBuilder) -> dict[str, int]:
    """Return the count of each kind."""
    summary = summary_of(trace, folder)
    return {row.kind: row.count for row in summary[COMMUNICATION_SUMS]}


def a_step() -> TraceBuilder:
    """A kernel on the compute stream, and an all-reduce on stream 20 that its operator launched at 10."""
    trace = TraceBuilder().step(0, 0, 100).kernel("gemm", 5, 10, launched_at=1)
    return trace.op("c10d::allreduce_", 9, 10).nccl("all_reduce", 20, 10, launched_at=10)


def test_unknown_kernels_of_a_collective_on_a_communication_stream_are_unclassified(tmp_path: Path) -> None:
    by_operator = a_step().kernel("mystery", 40, 10, stream=20, launched_at=12)
    assert kinds(tmp_path, by_operator) == {"all_reduce": 1, "unclassified": 1}
    by_annotation = a_step().label("nccl:all_gather", 29, 10).kernel("mystery", 40, 10, stream=20, launched_at=30)
    assert kinds(tmp_path, by_annotation) == {"all_reduce": 1, "unclassified": 1}
    several = a_step().kernel("one", 40, 5, stream=20, launched_at=12).kernel("two", 45, 5, stream=20, launched_at=13)
    assert kinds(tmp_path, several) == {"all_reduce": 1, "unclassified": 2}


def test_a_kernel_that_no_collective_launched_is_compute(tmp_path: Path) -> None:
    assert kinds(tmp_path, a_step().kernel("mystery", 40, 10, stream=20, launched_at=30)) == {"all_reduce": 1}
    on_another_thread = a_step().kernel("mystery", 40, 10, stream=20, launched_at=12)
    on_another_thread.events[-2]["tid"] = 99
    assert kinds(tmp_path, on_another_thread) == {"all_reduce": 1}
    assert kinds(tmp_path, a_step().kernel("unlinked", 40, 10, stream=20)) == {"all_reduce": 1}


def test_a_stream_of_its_own_under_a_collective_is_unclassified(tmp_path: Path) -> None:
    """GIVEN a collective that launches a kernel on a stream where nothing else runs. THEN it looks like communication,
    unless an operator that computes is behind it, or something else runs there.
    """
    mystery = a_step().kernel("mystery", 40, 10, stream=33, launched_at=12)
    assert kinds(tmp_path, mystery) == {"all_reduce": 1, "unclassified": 1}
    behind_an_operator = a_step().op("aten::copy_", 11, 3).kernel("mystery", 40, 10, stream=33, launched_at=12)
    assert kinds(tmp_path, behind_an_operator) == {"all_reduce": 1}
    mystery.kernel("other", 60, 10, stream=33, launched_at=55)
    assert kinds(tmp_path, mystery) == {"all_reduce": 1}
