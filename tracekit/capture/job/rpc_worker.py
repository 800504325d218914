"""Finds which worker of `torch.distributed.rpc` this process is. Nothing here imports torch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


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
