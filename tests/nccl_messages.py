"""Adds sends and receives of ProcessGroupNCCL to a built trace, as torch 2.5 and later record them.

    add_message(trace, "send", 1, launched_at=10, at_us=12, for_us=30)
    add_batch(trace, [("send", 1), ("recv", 1)], launched_at=50, at_us=60, for_us=30)

Times are microseconds. The keys are those of `saveNcclMeta` in torch/csrc/profiler/util.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.builders import TraceBuilder
from tracekit.model.spans import COALESCED_SPAN

_KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
_OPERATORS = {"send": "c10d::send", "recv": "c10d::recv_"}
_ARROWS = {"send": "->", "recv": "<-"}


def add_message(
    trace: TraceBuilder,
    direction: str,
    peer: int,
    *,
    launched_at: float,
    at_us: float,
    for_us: float,
    stream: int = 30,
    **message: Any,
) -> TraceBuilder:
    """A send or a receive by itself: its operators take 8 us, and launch the kernel 6 us after they began."""
    arguments = _operators(trace, direction, peer, launched_at - 6, 8, **message)
    place = {rank: i for i, rank in enumerate(_ranks(trace, message))}
    trace.label(f"nccl:{direction} {place[trace.rank]}{_ARROWS[direction]}{place[peer]}", launched_at - 3, 4)
    return trace.kernel(_KERNEL, at_us, for_us, stream=stream, launched_at=launched_at, **arguments)


def add_batch(
    trace: TraceBuilder,
    messages: Sequence[tuple[str, int]],
    *,
    launched_at: float,
    at_us: float,
    for_us: float,
    stream: int = 20,
    annotated: bool = True,
    kernels: int = 1,
    recorded: bool = False,
    **message: Any,
) -> TraceBuilder:
    """`batch_isend_irecv`: operators of 2 us each, one kernel or several that are launched behind them.

    `recorded`: the capture made a span around the batch.
    """
    begin_us = launched_at - 3 - 3 * len(messages)
    if recorded:
        trace.label(COALESCED_SPAN, begin_us - 1, launched_at + 2 * kernels + 10 - begin_us)
    for number, (direction, peer) in enumerate(messages):
        _operators(trace, direction, peer, begin_us + 3 * number, 2, **message)
    if annotated:
        trace.label("nccl:coalesced", launched_at - 2, 8)
    for number in range(kernels):
        trace.kernel(_KERNEL, at_us, for_us, stream=stream, launched_at=launched_at + 2 * number)
    return trace


def _ranks(trace: TraceBuilder, message: dict[str, Any]) -> list[int]:
    return list(message.get("group") or range(trace.world_size))


def _operators(
    trace: TraceBuilder,
    direction: str,
    peer: int,
    at_us: float,
    for_us: float,
    *,
    elements: int = 1000,
    group: Sequence[int] | None = None,
    description: str = "default_pg",
) -> dict[str, Any]:
    """Add the operators of a message, and return the arguments that a kernel launched inside has."""
    ranks = list(group or range(trace.world_size))
    arguments = {
        "Collective name": direction,
        "dtype": "Float",
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "In split size": "[]",
        "Out split size": "[]",
        "Global rank start": 0,
        "Global rank stride": 1,
        "Group size": len(ranks),
        "Process Group Name": description,
        "Process Group Description": description,
        "Process Group Ranks": str(ranks),
        "Rank": ranks.index(peer),
        {"send": "Dst Rank", "recv": "Src Rank"}[direction]: peer,
    }
    trace.op(_OPERATORS[direction], at_us, for_us)
    trace.op("record_param_comms", at_us + 0.5, for_us - 1, **arguments)
    return arguments
