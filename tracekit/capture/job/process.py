"""Which rank of the job this process is, and on which host and device it runs.

Rank and world size come from the process group, if there is one, else from the variables that launchers set. The
device is the accelerator that torch computes on, whatever torch calls it, or the CPU. `metadata_of` puts this and the
versions of the libraries into the metadata of a trace.
"""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.capture.job.rpc_worker import rpc_ready, rpc_store, this_worker
from tracekit.model.metadata import BLOCKING_VARIABLES, METADATA_VERSION, CaptureMetadata, Device, Settings
from tracekit.version import __version__

# Of torchrun, Open MPI, MPICH and its kin, PMIx, Cray's PALS and ALPS, and Slurm.
RANK_VARIABLES = (
    *("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PALS_RANKID", "ALPS_APP_PE", "SLURM_PROCID"),
)
WORLD_SIZE_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
LOCAL_RANK_VARIABLES = (
    *("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "SLURM_LOCALID"),
)


@dataclass(frozen=True, kw_only=True)
class Identity:
    """This process in its job.

    Attributes:
        rank: in the process group, or as a worker of RPC.
        local_rank: among the processes of the host.
        world_size: number of ranks.
        host: name of the host.
        host_id: hash of the boot id, equal for processes that share a clock.
        attempt: the number of the attempt of an elastic job. Until the ranks have agreed, the number of restarts.
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


def several_processes() -> bool:
    """Return whether other processes are in the default process group."""
    return process_group_ready() and sys.modules["torch.distributed"].get_world_size() > 1


def default_store() -> Any | None:
    """Return the key-value store that all processes of the job share, or None.

    With RPC it is that of RPC: process groups may contain only some of the workers.
    """
    if rpc_ready():
        return rpc_store()
    if not process_group_ready():
        return None
    return sys.modules["torch.distributed"].distributed_c10d._get_default_store()


def launch_settings(environment: Mapping[str, str] = os.environ) -> list[Settings]:
    """Return the variables that make launches block, of those that are set; without any nothing."""
    values = {name: value for name in BLOCKING_VARIABLES if (value := environment.get(name, "0")) not in ("", "0")}
    return [Settings(component="environment", values=dict(values))] if values else []


def identify(environment: Mapping[str, str] = os.environ) -> Identity:
    """Return this process in its job, as far as it is known now: the process group may not exist yet."""
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


def accelerator_module() -> Any | None:
    """Return torch's module of the accelerator that this process uses, such as `torch.cuda`.

    None on a CPU, and while training has not used the accelerator: the capture does not initialise one.
    """
    torch = sys.modules["torch"]
    try:
        device = torch.accelerator.current_accelerator()
    except RuntimeError:  # so says torch 2.6 that there is none
        return None
    module = None if device is None else getattr(torch, device.type, None)
    if module is None or not module.is_available():
        return None
    # Not every module of a device can be asked, and one that cannot is in use once it is imported.
    return module if getattr(module, "is_initialized", lambda: True)() else None


def this_device() -> Device:
    """Return the accelerator that this process computes on, else its CPU."""
    module = accelerator_module()
    if module is None:
        return Device(type="cpu", index=0, name=_cpu_name())
    kind, index = module.__name__.rpartition(".")[2], int(module.current_device())
    name = getattr(module, "get_device_name", None)
    return Device(type=kind, index=index, name=kind if name is None else str(name(index)))


def is_capturing_graph() -> bool:
    """Return whether a CUDA graph is being captured: then the profiler can neither be started nor stopped."""
    capturing = getattr(accelerator_module(), "is_current_stream_capturing", None)
    return capturing is not None and bool(capturing())


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return "CPU"


def metadata_of(run_id: str, identity: Identity, **recorded: Any) -> CaptureMetadata:
    """Return the metadata of a trace of this process; `recorded` are the fields about its content."""
    return CaptureMetadata(
        version=METADATA_VERSION,
        tracekit=__version__,
        torch=str(sys.modules["torch"].__version__),
        python=platform.python_version(),
        run_id=run_id,
        attempt=identity.attempt,
        rank=identity.rank,
        local_rank=identity.local_rank,
        world_size=identity.world_size,
        pid=os.getpid(),
        host=identity.host,
        host_id=identity.host_id,
        **recorded,
    )
