"""When DDP's buckets were ready, launched, started and exposed. Times are microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.explain.ddp.buckets import Buckets, buckets
from tracekit.loading.load import load
from tracekit.model.metadata import Bucket, DdpModule
from tracekit.model.table import records

COPY = "torch::distributed::reducer::mul_out"
SIZES = (300, 200)  # elements


def model(name: str = "Network", sizes: tuple[int, ...] = SIZES, **others: Any) -> DdpModule:
    parts = [
        Bucket(index=i, size_bytes=4 * size, dtype="float32", parameters=[f"{name}.{i}"])
        for i, size in enumerate(sizes)
    ]
    fields = {"bucket_cap_bytes": 1, "static_graph": False, "find_unused": False, "rebuilt": True}
    return DdpModule(module=name, buckets=parts, **fields | others)


def cpu_rank(rank: int, arrives: int, *, extra: int | None = None) -> TraceBuilder:
    """Two steps: bucket 0 ready at 20, bucket 1 at 60, queued until 65; both end 30 after the later rank `arrives`.
    `extra`: elements of another all-reduce between them."""
    trace = TraceBuilder(rank, 2)
    for number, at in enumerate((0, 200)):
        trace.step(number, at, 200)
        for begin, length in ((10, 8), (40, 15)):
            trace.backward("MmBackward0", at + begin, length)
            trace.op(COPY, at + begin + length, 2, thread=trace.autograd)
        where = {"thread": trace.autograd}
        trace.gloo("all_reduce", at + 22, 30, issued_at=at + 21, elements=300, **where)
        if extra is not None:
            trace.gloo("all_reduce", at + 23, 2, issued_at=at + 23, elements=extra, runloop=1, **where)
        start = at + 65 + arrives
        trace.gloo("all_reduce", start, at + 105 - start, issued_at=at + 60, elements=200, **where)
    return trace


def run(folder: Path, *traces: TraceBuilder, ddp: tuple[DdpModule, ...] = ()) -> Buckets:
    for trace in traces:
        trace.capture(ddp=ddp or (model(),), clock=[(0, 0, 0)])
    return buckets(load(write_run(folder, traces)))


def test_times_of_each_reduction(tmp_path: Path) -> None:
    result = run(tmp_path, cpu_rank(0, 0), cpu_rank(1, 10))
    rows = [row for row in records(result.times) if row["rank"] == 0 and row["step"] == 1]
    assert [row["index"] for row in rows] == [0, 1]
    names = ("ready_ns", "launch_ns", "start_ns", "end_ns", "uncovered_ns")
    # Bucket 0 runs from 22 to 52, under compute from 40 on; bucket 1 from 65 to 105, under none.
    assert [[row[name] // 1000 for name in names] for row in rows] == [[20, 21, 22, 52, 18], [57, 60, 65, 105, 40]]
    # Rank 1 comes last, and takes 30: 800 bytes in that, of which each rank sends all (2 (n - 1) / n = 1).
    assert rows[1]["busbw_bps"] == pytest.approx(800 / 30e-6)


def test_two_modules_have_separate_buckets(tmp_path: Path) -> None:
    result = run(tmp_path, cpu_rank(0, 0), cpu_rank(1, 0), ddp=(model("A", (300,)), model("B", (200,))))
    assert [(row["module"], row["index"]) for row in records(result.by_index)] == [("A", 0), ("B", 0)]


def test_without_a_bucket_map_there_are_no_rows(tmp_path: Path) -> None:
    result = buckets(load(write_run(tmp_path, [cpu_rank(0, 0), cpu_rank(1, 0)])))
    assert (len(result.bucket_map), len(result.times), len(result.by_index)) == (0, 0, 0)


def test_on_a_gpu_a_bucket_is_ready_when_the_kernels_before_it_have_ended(tmp_path: Path) -> None:
    traces = []
    for rank in (0, 1):
        trace = TraceBuilder(rank, 2).step(0, 0, 300)
        forward = {"Sequence number": 3, "Fwd thread id": 0}
        trace.op("aten::mm", 1, 2, **forward)
        trace.kernel("gemm", 5, 20, launched_at=2)
        trace.backward("MmBackward0", 10, 10).kernel("gemm", 25, 60, launched_at=12)
        trace.nccl("all_reduce", 90, 40, launched_at=15, elements=300)
        trace.kernel("gemm", 85, 30, launched_at=16)
        traces.append(trace)
    (row, _) = records(run(tmp_path, *traces, ddp=(model(sizes=(300,)),)).times)
    assert (row["ready_ns"], row["launch_ns"], row["start_ns"]) == (85_000, 15_000, 90_000)
    assert row["uncovered_ns"] == 15_000
