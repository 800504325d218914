"""What a late host did longer than its peers, on built traces. Times are microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.findings.finding import Finding
from tracekit.report.report import analyze

LATE = 1


def a_rank(rank: int, late_us: int, *events: tuple[str, str], steps: int = 6) -> TraceBuilder:
    """Steps of 1000 that begin with 100 of an operator, late by some time, in which the host is in these events."""
    trace = TraceBuilder(rank, 4)
    for step in range(steps):
        begin = 1000 * step
        start = begin + late_us + 10
        trace.step(step, begin, 1000).op("aten::mm", start, 100).kernel("gemm", start + 10, 300, launched_at=start + 5)
        for name, category in events if late_us else ():
            args = {"correlation": 9000 + step} if category == "cuda_runtime" else {}
            trace.event(name, category, begin + 5, late_us, args=args)
        trace.nccl("all_reduce", start + 310, 690 - late_us - 10, launched_at=start + 6)
    return trace


def straggler(folder: Path, *events: tuple[str, str]) -> Finding:
    run = write_run(folder, [a_rank(rank, 400 * (rank == LATE), *events) for rank in range(4)])
    (found,) = (finding for finding in analyze(run, only=["stragglers"]).findings if finding.id == "straggler")
    assert found.rank == LATE
    return found


@pytest.mark.parametrize(
    ("name", "category", "cause"),
    [
        ("Python GC", "python_function", "garbage_collection"),
        ("cudaMalloc", "cuda_runtime", "allocator"),
        ("hipFree", "cuda_runtime", "allocator"),
        ("aten::randperm", "cpu_op", "host_compute"),
        ("my_label", "user_annotation", "host"),
    ],
)
def test_a_late_host_is_named_with_what_it_does(tmp_path: Path, name: str, category: str, cause: str) -> None:
    assert straggler(tmp_path, (name, category)).cause == cause


@pytest.mark.parametrize("stacks", [False, True])
def test_data_from_a_plain_function_is_told_by_its_name_or_its_place(tmp_path: Path, *, stacks: bool) -> None:
    function = "/home/me/train.py(12): get_batch"
    found = straggler(tmp_path, *([(function, "python_function")] if stacks else []))
    where: Any = found.evidence["host_in"]
    assert (found.cause, where["annotation"]) == ("host", "before the first operator")
    assert where["source"] == (function if stacks else None)
    assert ("stack=True" in (found.action or "")) is not stacks
