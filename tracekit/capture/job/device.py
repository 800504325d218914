"""The accelerator that this process computes on, by whatever name torch has for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tracekit.model.metadata import Device

__all__ = ["accelerator_module", "is_capturing_graph", "this_device"]


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
