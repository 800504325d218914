"""Traces of GPU ranks that load data, compute, reduce, step and wait for their device. Times are microseconds.

Of a step with kernels of 100:

    host     load 0-4  launch gemm 8  all_reduce 12  adam 16   synchronise 20-162   own work until 200
    device             gemm 15-115  all_reduce 115-135  adam 137-157
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tests.builders import TraceBuilder
from tracekit.explain.whatif.graph.run_graph import build_run_graph
from tracekit.loading.load import load
from tracekit.replay.operation_graph import GraphSteps, OperationGraph

STEPS = 3


def trace_of(
    rank: int,
    gemm_us: Sequence[int],
    *,
    load_at: int = 0,
    elements: Callable[[int, int], int] = lambda rank, step: 1000,
) -> TraceBuilder:
    """Return the trace of one rank. gemm_us: of all ranks. elements: how many a rank reduces in a step."""
    trace, longest = TraceBuilder(rank, len(gemm_us)), max(gemm_us)
    for k in range(STEPS):
        at = k * (longest + 100)
        trace.step(k, at, longest + 100)
        trace.event("enumerate(DataLoader)#it", "user_annotation", at + load_at, 4)
        trace.kernel("gemm", at + 15, gemm_us[rank], launched_at=at + 8)
        trace.nccl(
            "all_reduce",
            at + 15 + gemm_us[rank],
            longest - gemm_us[rank] + 20,
            launched_at=at + 12,
            elements=elements(rank, k),
        )
        trace.kernel("adam", at + longest + 37, 20, launched_at=at + 16)
        trace.event("cudaDeviceSynchronize", "cuda_runtime", at + 20, longest + 42, args={"correlation": 900 + k})
    return trace


def graph_of_job(folder: Path, gemm_us: Sequence[int], **options: object) -> OperationGraph:
    for rank in range(len(gemm_us)):
        trace_of(rank, gemm_us, **options).write(folder / f"rank{rank}.json.gz")  # type: ignore[arg-type]
    return build_run_graph(load(folder))


def steps_of_job(folder: Path, gemm_us: Sequence[int], **options: object) -> tuple[OperationGraph, GraphSteps]:
    """Return the graph, and its steps, which are one range of steps."""
    graph = graph_of_job(folder, gemm_us, **options)
    (steps,) = graph.step_groups
    return graph, steps
