"""Small traces of GPU ranks with all that HTA and anonymisation look at."""

from __future__ import annotations

from tests.builders import TraceBuilder


def gpu_steps(rank: int = 0, steps: int = 3, *, offset_us: float = 0.25) -> TraceBuilder:
    """Return a rank with `steps` steps of 100 us: an operator, three launches, a copy and an all-reduce in each.

    `offset_us` is added to all times of a step; with 0 all times are whole microseconds.
    """
    trace = TraceBuilder(rank=rank)
    for step in range(steps):
        at = 100 * step + offset_us
        trace.step(step + 5, at, 100)
        shapes = {"Input Dims": [[step, 4], []], "Input type": ["float", "Scalar"], "Input Strides": [[4, 1], []]}
        trace.op("aten::mm", at + 1, 8, **shapes)
        trace.kernel("void gemm<float>(float*)", at + 20, 30, launched_at=at + 2, grid=[1, 2, 3])
        trace.kernel("void relu<float>(float*)", at + 50, 10 + step / 8, launched_at=at + 4, grid=[8, 1, 1])
        trace.memcpy(at + 65, 4, launched_at=at + 7)
        trace.events[-1]["args"] |= {"bytes": 4096 * (step + 1), "memory bandwidth (GB/s)": 12.5 * step}
        trace.nccl("all_reduce", at + 55, 30, launched_at=at + 9)
    return trace
