"""Says which accelerator this process computes on, by whatever name torch has for it, and where a trace comes from.

A trace's metadata have the versions, the process and its rank.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import tracekit
from tracekit.capture.job.process import Identity
from tracekit.model.metadata import METADATA_VERSION, CaptureMetadata, Device

__all__ = ["accelerator_module", "is_capturing_graph", "metadata_of", "this_device"]


def accelerator_module() -> Any | None:
    """Return torch's module of the accelerator that this process uses, such as `torch.cuda`.

    None on a CPU, and while training has not used the accelerator: the capture does not initialise one.
    """
    torch = sys.modules["torch"]
    device = torch.accelerator.current_accelerator()
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
        tracekit=tracekit.__version__,
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
