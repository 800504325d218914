"""Traces of GPU ranks that compute and then meet, and the result of analysing a folder of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.builders import TraceBuilder
from tracekit.loading.load import load
from tracekit.render.json_result import result_dict
from tracekit.report.report import analyze


def gpu_rank(rank: int, world_size: int = 4, *, compute_us: float = 50, steps: range = range(3)) -> TraceBuilder:
    """Steps of 100 us: compute for `compute_us`, then an all-reduce that ends at 100 on every rank."""
    trace = TraceBuilder(rank, world_size)
    for k in steps:
        begin = 100 * k
        trace.step(k, begin, 100).kernel("gemm", begin, compute_us, launched_at=begin)
        trace.nccl("all_reduce", begin + compute_us, 100 - compute_us, launched_at=begin + 1)
    return trace


def result(folder: Path, **how: Any) -> dict[str, Any]:
    return result_dict(analyze(load(folder, **how)))
