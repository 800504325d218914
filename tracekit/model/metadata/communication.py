"""What a rank communicated beyond what its trace says, and its remote calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tracekit.model.metadata.job import Integer, Rank

CommunicationPurpose = Literal["gradients", "parameters", "activations", "tokens"]

RpcCallKind = Literal["call", "remote", "builtin", "script", "fetch"]
"""call: a Python function whose result comes back. remote: one whose result stays with the callee (`rpc.remote`).
builtin: an operator of torch. script: a TorchScript function. fetch: of an RRef's value."""


@dataclass(frozen=True, kw_only=True)
class CollectiveRecord:
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


@dataclass(frozen=True, kw_only=True)
class CommunicationUse:
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


@dataclass(frozen=True, kw_only=True)
class PointToPointRecord:
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


@dataclass(frozen=True, kw_only=True)
class RpcCall:
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


@dataclass(frozen=True, kw_only=True)
class RpcCallId:
    """A remote call by the worker that issued it.

    Attributes:
        caller: id of that worker.
        number: number of the call there.
    """

    caller: Integer
    number: Integer


@dataclass(frozen=True, kw_only=True)
class RpcService:
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


@dataclass(frozen=True, kw_only=True)
class RpcWait:
    """The training thread was blocked in the wait for a future, or in the fetch of a remote value.

    Attributes:
        start_ns: when the wait began.
        end_ns: when it ended.
        number: of the call that the future belongs to; None for futures made of others.
    """

    start_ns: Integer
    end_ns: Integer
    number: Integer | None = None


@dataclass(frozen=True, kw_only=True)
class RpcUse:
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
    calls: list[RpcCall] = field(default_factory=list)
    services: list[RpcService] = field(default_factory=list)
    waits: list[RpcWait] = field(default_factory=list)
    threads: Integer | None = None
