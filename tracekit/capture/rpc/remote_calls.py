"""Reads what the capture needs of torch's RPC: this worker, its rendezvous store, and the mark on a call.

The mark is the caller and the number of the call, appended to the pickled function. Unpickling stops at the end of the
pickle, so a peer without tracekit never sees the mark. Nothing here imports torch.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from typing import Any

_MAGIC = b"\xfftracekit\x01"  # a pickle ends with a full stop
_CALL_ID = struct.Struct("<IQ")
_MARK_BYTES = _CALL_ID.size + len(_MAGIC)

__all__ = ["Worker", "add_mark", "function_name", "read_mark", "rpc_module", "rpc_ready", "rpc_store", "this_worker"]


@dataclass(frozen=True, kw_only=True)
class Worker:
    """This process as a worker of RPC.

    Attributes:
        world_size: the number of workers.
        threads: how many threads run requests; None where it is not known.
    """

    name: str
    number: int
    world_size: int
    threads: int | None = None


def rpc_module(name: str) -> Any | None:
    """`torch.distributed.rpc.<name>`, or None where torch was built without RPC or has not been imported."""
    return sys.modules.get(f"torch.distributed.rpc.{name}")


def rpc_ready() -> bool:
    """Return whether this process is a worker of RPC: between `init_rpc` and the end of `shutdown`."""
    is_set = getattr(rpc_module("api"), "_is_current_rpc_agent_set", None)
    return is_set is not None and bool(is_set())


def this_worker() -> Worker | None:
    api = rpc_module("api")
    if api is None or not rpc_ready():
        return None
    agent = api._get_current_rpc_agent()
    info = agent.get_worker_info()
    options = agent._get_backend_options() if hasattr(agent, "_get_backend_options") else None
    return Worker(
        name=str(info.name),
        number=int(info.id),
        world_size=len(agent.get_worker_infos()),
        threads=getattr(options, "num_worker_threads", None),
    )


def rpc_store() -> Any | None:
    """Return the store of `init_rpc`'s rendezvous, or None where workers may join and leave: they share no world.

    torch keeps the store alive in the frame of the rendezvous.
    """
    rendezvous = getattr(sys.modules.get("torch.distributed.rpc"), "rendezvous_iterator", None)
    frame = getattr(rendezvous, "gi_frame", None)
    store = frame.f_locals.get("store") if frame is not None else None
    return store if hasattr(store, "compare_set") else None


def add_mark(payload: bytes, caller: int, number: int) -> bytes:
    """Return the pickled call, marked as call `number` of the worker `caller`."""
    return payload + _CALL_ID.pack(caller, number) + _MAGIC


def read_mark(payload: object) -> tuple[int, int] | None:
    """Return caller and number of a marked call; None for anything else."""
    if not isinstance(payload, bytes) or not payload.endswith(_MAGIC) or len(payload) < _MARK_BYTES:
        return None
    caller, number = _CALL_ID.unpack_from(payload, len(payload) - _MARK_BYTES)
    return caller, number


def function_name(call: Any) -> str:
    """Return the name of the function that a `PythonUDF` calls; for a call through an RRef that of the method."""
    function = call.func
    if getattr(function, "__name__", "").startswith("_local_invoke") and len(call.args) > 1:
        return str(call.args[1])
    function = getattr(function, "__func__", function)
    return str(getattr(function, "__qualname__", type(function).__qualname__))
