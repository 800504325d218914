"""The remote calls of a rank."""

from __future__ import annotations

from typing import Literal

import msgspec

from tracekit.model.metadata.limits import Integer

__all__ = [
    "RpcCall",
    "RpcCallKind",
    "RpcService",
    "RpcUse",
    "RpcWait",
]

RpcCallKind = Literal["call", "remote", "builtin", "script", "fetch"]
"""call: a Python function whose result comes back. remote: one whose result stays with the callee (`rpc.remote`).
builtin: an operator of torch. script: a TorchScript function. fetch: of an RRef's value."""


class RpcCall(msgspec.Struct, frozen=True, kw_only=True):
    """A remote call that this worker issued, with its number in the process.

    A `call` and a `remote` pass the id of the worker and this number to the callee. The other kinds run entirely in
    C++.
    """

    number: Integer
    callee: str  # name of the worker
    function: str
    kind: RpcCallKind
    issued_ns: Integer
    done_ns: Integer | None  # None: it was not seen to complete


class RpcService(msgspec.Struct, frozen=True, kw_only=True):
    """A remote call that this worker served, with the caller's id and number of the call."""

    caller: Integer  # id of the worker
    number: Integer
    function: str
    start_ns: Integer
    end_ns: Integer


class RpcWait(msgspec.Struct, frozen=True, kw_only=True):
    """The training thread was blocked in the wait for a future, or in the fetch of a remote value.

    Attributes:
        number: of the call that the future belongs to; None for futures made of others.
    """

    start_ns: Integer
    end_ns: Integer
    number: Integer | None = None


class RpcUse(msgspec.Struct, frozen=True, kw_only=True):
    """What this worker of `torch.distributed.rpc` called in the window, and what it served to peers that record."""

    worker: str
    worker_id: Integer
    calls: list[RpcCall] = []
    services: list[RpcService] = []
    waits: list[RpcWait] = []
