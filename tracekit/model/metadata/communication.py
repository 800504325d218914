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
    """One flight-recorder entry of a collective; `seq` is equal on all ranks of the group."""

    group: Integer  # -1: destroyed before the window was closed
    seq: Integer
    kind: str
    dtypes: list[str]
    in_shapes: list[list[Integer]]
    out_shapes: list[list[Integer]]
    created_ns: Integer
    on_step_thread: bool | None = None  # created on the thread that called the step; None: not known


CommunicationPurpose = Literal["gradients", "parameters", "activations", "tokens"]


class CommunicationUse(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives that the program's Python code issued on a group, by the purpose of the tensors that it passed."""

    group: Integer
    purpose: CommunicationPurpose
    calls: Integer  # in the window
    in_backward: Integer  # of these, while a backward pass was running
    parameters: Integer | None = None  # how many parameters' gradients, if that is known for each call


class PointToPointRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One send or receive that Python code issued; `peer` is a global rank."""

    group: Integer  # -1: destroyed before the window was closed
    peer: Rank
    tag: Integer
    direction: Literal["send", "recv"]
    index: Integer  # among those of the window with the same group, peer, tag and direction
    created_ns: Integer | None = None
    size_bytes: Integer | None = None
    any_source: bool = False  # the receive named no peer; `peer` is the sender
