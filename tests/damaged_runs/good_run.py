"""Ranks on GPUs whose numbers are known, in files that are ordered as Kineto orders them.

Eight ranks are good. The ninth, `BAD`, is there to be damaged. A step takes 1000 us on every rank, and the host runs
ahead of its device. Rank `SLOW` computes 600 us, all others 500 us, and two all-reduces end on all ranks at once. A
copy of 20 us begins the step:

    stream 7   |copy|== gemm ==|== gemm ==|== gemm ==|== gemm ==|
    stream 20                  |=== all_reduce ===|  |==== all_reduce ====|
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.builders import TraceBuilder

GOOD = range(8)
BAD = 8
WORLD_SIZE = 9
STEPS = range(3, 9)
STEP_US = 1000
SLOW = 5
_COPY_US = 20
_GEMMS = 4
_NOTES_OF_PROFILER = ("Iteration Start: PyTorch Profiler", "Record Window End")


def good_traces() -> dict[int, TraceBuilder]:
    return {rank: rank_trace(rank) for rank in GOOD}


def rank_trace(rank: int = BAD, *, steps: range = STEPS, at_us: float = 0, pid: int | None = None) -> TraceBuilder:
    """Return the trace of one rank. `at_us` is when its first step begins, `pid` another process."""
    trace = TraceBuilder(rank, WORLD_SIZE)
    trace.header["distributedInfo"]["backend"] = "nccl"
    trace.header["deviceProperties"] = [{"id": 0, "name": "NVIDIA H100", "computeMajor": 9, "numSms": 132}]
    if pid is not None:
        trace.pid = trace.main = pid
        trace.autograd = pid + 100
    for place, step in enumerate(steps):
        _add_step(trace, step, at_us + STEP_US * place, place)
    trace.events = [*sorted(trace.events, key=_section_and_time), *_kineto_ending(trace, at_us, len(steps))]
    return trace


def _add_step(trace: TraceBuilder, step: int, begin: float, place: int) -> None:
    gemm_us = 150 if trace.rank == SLOW else 125
    trace.step(step, begin, STEP_US)
    trace.memcpy(begin + 10, _COPY_US, launched_at=begin + 1)
    trace.op("aten::linear", begin + 2, 60)
    for i in range(_GEMMS):
        launched_at = begin + 4 + 10 * i
        trace.op("aten::mm", launched_at - 1, 5)
        operator = trace.events[-1]["args"]["External id"]
        trace.kernel("gemm", begin + 30 + gemm_us * i, gemm_us, launched_at=launched_at)
        for event in trace.events[-2:]:
            event["args"]["External id"] = operator
    trace.backward("MmBackward0", begin + 70, 30)
    for i, (first, end) in enumerate(((30 + 2 * gemm_us, 500), (30 + 4 * gemm_us, 980))):
        trace.nccl("all_reduce", begin + first, end - first, launched_at=begin + 80 + i, Seq=2 * place + i + 1)


def _section_and_time(event: dict[str, Any]) -> tuple[bool, Any]:
    """Order events as Kineto does: operators of all threads in order of time, then the records of CUPTI."""
    return event["cat"] not in ("cpu_op", "user_annotation"), event["ts"]


def _kineto_ending(trace: TraceBuilder, at_us: float, steps: int) -> list[dict[str, Any]]:
    start, end = trace.ts(at_us - 5), trace.ts(at_us + STEP_US * steps + 5)
    names = {trace.pid: "python3", 0: "python3"}
    return [
        *(
            {"name": "process_name", "ph": "M", "ts": start, "pid": p, "tid": 0, "args": {"name": n}}
            for p, n in names.items()
        ),
        {"ph": "X", "cat": "Trace", "ts": start, "dur": end - start, "pid": "Spans", "tid": "PyTorch Profiler"}
        | {"name": "PyTorch Profiler (0)", "args": {"Op count": 0}},
        {
            "name": _NOTES_OF_PROFILER[0],
            "ph": "i",
            "s": "g",
            "pid": "Traces",
            "tid": "Trace PyTorch Profiler",
            "ts": start,
        },
        {"name": _NOTES_OF_PROFILER[1], "ph": "i", "s": "g", "pid": "", "tid": "", "ts": end},
    ]


def write_good_run(folder: Path) -> Path:
    """Write the eight good ranks into the folder, and return the folder."""
    for rank, trace in good_traces().items():
        trace.write(folder / f"rank{rank}.json")
    return folder
