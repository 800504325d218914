"""Finds which rank of the job this process is, on which host and device, and in which run.

Rank and world size come from the process group, if there is one, else from the variables that launchers set.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tracekit.capture.job.store import BoundedStore
from tracekit.capture.rpc.remote_calls import rpc_ready, rpc_store, this_worker

RUN_ID_KEY = "tracekit/run_id"
RUN_ID_WAIT_S = 2.0
ANSWER_TIMEOUT_S = 1.0  # of the store, which usually answers within a millisecond
MAX_SLUG_LENGTH = 38  # leaves room for time and random number in 64 characters
UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# Of torchrun, Open MPI, MPICH and its kin, PMIx, Cray's PALS and ALPS, and Slurm.
RANK_VARIABLES = (
    *("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PALS_RANKID", "ALPS_APP_PE", "SLURM_PROCID"),
)
WORLD_SIZE_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
LOCAL_RANK_VARIABLES = (
    *("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "SLURM_LOCALID"),
)

__all__ = ["Identity", "await_run_id", "default_store", "identify", "look_up_run_id", "publish_run_id"]
__all__ += ["has_joined_peers", "process_group_ready"]


@dataclass(frozen=True, kw_only=True)
class Identity:
    """This process in its job.

    Attributes:
        rank: in the process group, or as a worker of RPC.
        local_rank: among the processes of the host.
        world_size: number of ranks.
        host: name of the host.
        host_id: hash of the boot id, equal for processes that share a clock.
        attempt: number of restarts of an elastic job.
    """

    rank: int
    local_rank: int
    world_size: int
    host: str
    host_id: str
    attempt: int


def process_group_ready() -> bool:
    """Return whether torch.distributed is imported and initialised; imports nothing."""
    distributed = sys.modules.get("torch.distributed")
    return bool(distributed and distributed.is_available() and distributed.is_initialized())


def has_joined_peers() -> bool:
    """Return whether this process has joined its peers, in a process group or as a worker of RPC."""
    return process_group_ready() or rpc_ready()


def default_store() -> Any | None:
    """Return the key-value store that all processes of the job share, or None.

    With RPC it is that of RPC: process groups may contain only some of the workers.
    """
    if rpc_ready():
        return rpc_store()
    if not process_group_ready():
        return None
    return sys.modules["torch.distributed"].distributed_c10d._get_default_store()


def identify(environment: Mapping[str, str] = os.environ) -> Identity:
    rank = _first_integer(environment, RANK_VARIABLES, 0)
    world_size = _first_integer(environment, WORLD_SIZE_VARIABLES, 1)
    if process_group_ready():
        distributed = sys.modules["torch.distributed"]
        rank, world_size = distributed.get_rank(), distributed.get_world_size()
    if (worker := this_worker()) is not None and (worker.world_size > world_size or not process_group_ready()):
        rank, world_size = worker.number, worker.world_size
    world_size = max(world_size, rank + 1)  # PMIx and Cray's launchers say only the rank
    return Identity(
        rank=rank,
        # Without a launcher (`mp.spawn`) all ranks are usually on one host.
        local_rank=_first_integer(environment, LOCAL_RANK_VARIABLES, rank),
        world_size=world_size,
        host=socket.gethostname(),
        host_id=_host_id(),
        attempt=_first_integer(environment, ("TORCHELASTIC_RESTART_COUNT",), 0),
    )


def publish_run_id(
    store: BoundedStore | None,
    identity: Identity,
    number: int,
    environment: Mapping[str, str] = os.environ,
    *,
    any_rank: bool = False,
) -> str | None:
    """On rank 0: name the run and publish the name in the store. Return the name, or None if it is still to come.

    Args:
        number: which probe of the process this is; each has its own run.
        any_rank: the first rank to come names the run, as rank 0 may be a server that never records.
    """
    if identity.rank != 0 and store is not None and not any_rank:
        return None
    run_id = _new_run_id(environment)
    if store is not None:
        key = _run_id_key(number)

        def publish(shared: Any) -> str:
            if identity.attempt == 0 and not any_rank:
                shared.set(key, run_id)
                return run_id
            # The store of an elastic agent outlives its workers; all attempts of one launch belong to one run.
            return str(shared.compare_set(key, "", run_id).decode())

        with contextlib.suppress(Exception):  # errors depend on the store; other ranks then name their own runs
            return _slug(store.ask(publish, ANSWER_TIMEOUT_S), 64)
        if identity.rank != 0:
            return None
    return run_id


def look_up_run_id(store: BoundedStore | None, number: int) -> str | None:
    """Return the name that rank 0 gave the run, or None if it has not yet."""
    key = _run_id_key(number)
    with contextlib.suppress(Exception):  # the store's server may be gone; the error depends on the store
        if store is not None and (
            answer := store.ask(lambda shared: shared.get(key) if shared.check([key]) else None, ANSWER_TIMEOUT_S)
        ):
            return _slug(answer.decode(), 64)
    return None


def await_run_id(store: BoundedStore | None, identity: Identity, number: int) -> tuple[str, bool]:
    """Return the name that rank 0 gave the run and True; after two seconds a name for this process alone and False.

    It polls, because a blocking `get` occupies the store until its own time-out of minutes.
    """
    deadline = time.monotonic() + RUN_ID_WAIT_S
    while store is not None and not store.has_given_up and time.monotonic() < deadline:
        if (run_id := look_up_run_id(store, number)) is not None:
            return run_id, True
        time.sleep(0.01)
    name = f"unknown-{_slug(identity.host, 40)}-{os.getpid()}"
    return name + (f"-{number}" if number else ""), False


def _run_id_key(number: int) -> str:
    return f"{RUN_ID_KEY}/{number}"


def _new_run_id(environment: Mapping[str, str]) -> str:
    """Return a unique name. An elastic id alone would not be: the next launch may have the same one."""
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
    elastic = environment.get("TORCHELASTIC_RUN_ID", "none")
    # torchrun's default, and the random id of `--standalone`, mean nothing to a reader.
    if elastic in {"", "none"} or re.fullmatch(UUID, elastic):
        return name
    return f"{_slug(elastic, MAX_SLUG_LENGTH)}-{name}"


def _slug(text: str, length: int) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:length] or "run"


def _first_integer(environment: Mapping[str, str], variables: tuple[str, ...], default: int) -> int:
    for variable in variables:
        if (text := environment.get(variable, "")).isdecimal():
            return int(text)
    return default


def _host_id() -> str:
    """Return a hash of the boot id: containers of one host share it, as they share the clock."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = f"{uuid.getnode():012x}"
    return hashlib.sha256(boot.encode()).hexdigest()[:16]
