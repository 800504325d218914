"""What a rank communicated, beyond what its trace says."""

from __future__ import annotations

from typing import Literal

import msgspec

from tracekit.model.metadata.limits import Integer, Rank

__all__ = [
    "CollectiveRecord",
    "CommunicationPurpose",
    "CommunicationUse",
    "PointToPointRecord",
]


class CollectiveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a collective in torch's flight recorder.

    Attributes:
        group: id of the group; -1: destroyed before the window was closed.
        seq: number of the collective in its group, equal on all ranks.
        kind: all_reduce, all_gather, ...
        dtypes: data types of the tensors.
        in_shapes, out_shapes: shapes of the tensors.
        created_ns: when it was issued.
        on_step_thread: created on the thread that called the step; None: not known.
    """

    group: Integer
    seq: Integer
    kind: str
    dtypes: list[str]
    in_shapes: list[list[Integer]]
    out_shapes: list[list[Integer]]
    created_ns: Integer
    on_step_thread: bool | None = None


CommunicationPurpose = Literal["gradients", "parameters", "activations", "tokens"]


class CommunicationUse(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives that the program's Python code issued on a group, by the purpose of the tensors that it passed.

    Attributes:
        group: id of the group.
        purpose: what the tensors are.
        calls: how many calls the window has.
        in_backward: of these, while a backward pass was running.
        parameters: how many parameters' gradients, if that is known for each call.
    """

    group: Integer
    purpose: CommunicationPurpose
    calls: Integer
    in_backward: Integer
    parameters: Integer | None = None


class PointToPointRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One send or receive that Python code issued.

    Attributes:
        group: id of the group; -1: destroyed before the window was closed.
        peer: global rank of the other side.
        tag: as the program passed it.
        direction: whether it is a send or a receive.
        index: number among those of the window with the same group, peer, tag and direction.
        created_ns: when it was issued.
        size_bytes: size of the tensor.
        any_source: the receive named no peer; `peer` is the sender.
    """

    group: Integer
    peer: Rank
    tag: Integer
    direction: Literal["send", "recv"]
    index: Integer
    created_ns: Integer | None = None
    size_bytes: Integer | None = None
    any_source: bool = False
