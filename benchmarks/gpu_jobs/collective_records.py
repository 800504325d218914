"""What ProcessGroupNCCL records of a communication operation.

Sources, of torch 2.13: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (names that it passes to
RECORD_PARAM_COMMS_DATA and the titles of its works), ParamCommsUtils.hpp (what they hold), torch/csrc/profiler/util.cpp
(`saveNcclMeta`: which of them become arguments). A send passes its peer as `rank`, and `Dst Rank` is that member's
global rank; a receive likewise, with `Src Rank`.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu_jobs.groups import Group
from benchmarks.gpu_jobs.spec import JobSpec


@dataclass(frozen=True)
class Collective:
    """Names of an operation: in `Collective name`, of its operator, its work and its kernel."""

    name: str
    operator: str
    annotation: str
    kernel: str
    input_share: bool = False  # the input is a share of the output
    output_share: bool = False  # the output is a share of the input


def _kernel(operation: str) -> str:
    return f"ncclDevKernel_{operation}(ncclDevKernelArgsStorage<4096ul>)"


COLLECTIVES = {
    "all_reduce": Collective("allreduce", "c10d::allreduce_", "nccl:all_reduce", _kernel("AllReduce_Sum_f32_RING_LL")),
    "all_gather": Collective(
        "_allgather_base",
        "c10d::_allgather_base_",
        "nccl:_all_gather_base",
        _kernel("AllGather_RING_LL"),
        input_share=True,
    ),
    "reduce_scatter": Collective(
        "_reduce_scatter_base",
        "c10d::_reduce_scatter_base_",
        "nccl:_reduce_scatter_base",
        _kernel("ReduceScatter_Sum_f32_RING_LL"),
        output_share=True,
    ),
    "all_to_all": Collective("all_to_allv", "c10d::alltoall_base_", "nccl:all_to_all", _kernel("SendRecv")),
    "send": Collective("send", "c10d::send", "nccl:send", _kernel("SendRecv")),
    "recv": Collective("recv", "c10d::recv_", "nccl:recv", _kernel("SendRecv")),
}

_LISTED = 30  # of longer lists `saveNcclMeta` writes the beginning


def comms_facts(
    spec: JobSpec,
    rank: int,
    group: Group,
    collective: Collective,
    elements: int,
    sequence: int,
    splits: tuple[Sequence[int], Sequence[int]] = ((), ()),
    *,
    peer: int | None = None,
) -> dict[str, Any]:
    """Return the arguments of `record_param_comms`. `elements` are of the full array, or of both splits."""
    ranks = group.ranks
    in_split, out_split = splits
    inputs = sum(in_split) or elements // (len(ranks) if collective.input_share else 1)
    outputs = sum(out_split) or elements // (len(ranks) if collective.output_share else 1)
    facts: dict[str, Any] = {
        "Collective name": collective.name,
        "dtype": "Float",
        "In msg nelems": inputs,
        "Out msg nelems": outputs,
        "In split size": _listed(in_split),
        "Out split size": _listed(out_split),
        "Global rank start": ranks[0],
        "Global rank stride": ranks[1] - ranks[0] if len(ranks) > 1 else 1,
        "Group size": len(ranks),
        "Process Group Name": group.uid,
        "Process Group Description": group.description,
        "Process Group Ranks": _listed(ranks),
    }
    if not spec.sequence_numbers:
        return facts
    passed = ranks.index(rank if peer is None else peer)
    facts |= {"Rank": passed, "Seq": sequence, "Comms Id": _comms_id(group, sequence, peer is not None)}
    if peer is not None:
        facts["Dst Rank" if collective.name == "send" else "Src Rank"] = peer
    return facts


def message_annotation(group: Group, kind: str, rank: int, peer: int) -> str:
    """Return the title of the work of a send or a receive."""
    own, other = group.ranks.index(rank), group.ranks.index(peer)
    return f"nccl:send {own}->{other}" if kind == "send" else f"nccl:recv {own}<-{other}"


def _comms_id(group: Group, sequence: int, is_message: bool) -> int:
    """Return a number that operations of different groups or places do not share; torch takes a hash."""
    return zlib.crc32(f"{group.uid} {sequence} {is_message}".encode())


def _listed(numbers: Sequence[int]) -> str:
    if len(numbers) > _LISTED:
        return f"[{', '.join(map(str, numbers[: _LISTED - 1]))}, ..., {numbers[-1]}]"
    return f"[{', '.join(map(str, numbers))}]"
