"""The remote calls of a rank."""

from __future__ import annotations

from typing import Literal

import msgspec

from tracekit.model.metadata.limits import Integer

__all__ = [
    "RpcCall",
    "RpcCallId",
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

    Attributes:
        number: of the call, in this process.
        callee: name of the worker that is called.
        function: name of the function.
        kind: what kind of call it is.
        issued_ns: when it was issued.
        done_ns: when it was complete; None: it was not seen to complete.
    """

    number: Integer
    callee: str
    function: str
    kind: RpcCallKind
    issued_ns: Integer
    done_ns: Integer | None


class RpcCallId(msgspec.Struct, frozen=True, kw_only=True):
    """A remote call by the worker that issued it.

    Attributes:
        caller: id of that worker.
        number: number of the call there.
    """

    caller: Integer
    number: Integer


class RpcService(msgspec.Struct, frozen=True, kw_only=True):
    """A remote call that this worker served, with the caller's id and number of the call.

    Attributes:
        caller: id of the worker that called.
        number: number of the call there.
        function: name of the function.
        start_ns: when it began.
        end_ns: when it ended; of an asynchronous function when its future was complete.
        returned_ns: when an asynchronous function returned its future; None for any other.
        cpu_ns: how long the thread ran on a CPU in the function; None where it is not known.
        released_by: the call whose service completed the future of this one; None for any other.
    """

    caller: Integer
    number: Integer
    function: str
    start_ns: Integer
    end_ns: Integer
    returned_ns: Integer | None = None
    cpu_ns: Integer | None = None
    released_by: RpcCallId | None = None


class RpcWait(msgspec.Struct, frozen=True, kw_only=True):
    """The training thread was blocked in the wait for a future, or in the fetch of a remote value.

    Attributes:
        start_ns: when the wait began.
        end_ns: when it ended.
        number: of the call that the future belongs to; None for futures made of others.
    """

    start_ns: Integer
    end_ns: Integer
    number: Integer | None = None


class RpcUse(msgspec.Struct, frozen=True, kw_only=True):
    """What this worker of `torch.distributed.rpc` called in the window, and what it served to peers that record.

    Attributes:
        worker: name of the worker.
        worker_id: its id.
        calls: what it called.
        services: what it served.
        waits: when its training thread waited.
        threads: how many threads run requests; None where it is not known.
    """

    worker: str
    worker_id: Integer
    calls: list[RpcCall] = []
    services: list[RpcService] = []
    waits: list[RpcWait] = []
    threads: Integer | None = None
