"""Which devices there are, and what they are: CUDA's, or those of ROCm, which torch calls cuda as well."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

# A dotted number: the first one in the line of either driver is its version.
_VERSION = re.compile(r"\b\d+(?:\.\d+)+\b")
_DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/sys/module/amdgpu/version"))


def count_devices() -> int:
    """Return the number of devices, 0 without torch or without a driver that works."""
    try:
        import torch
    except ImportError:
        return 0
    with warnings.catch_warnings(action="ignore"):  # torch warns of a driver that is too old
        return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0


def driver_version(files: tuple[Path, ...] = _DRIVERS) -> str:
    """Return the version of the kernel's driver, or "unknown"."""
    for file in files:
        if file.is_file() and (version := _VERSION.search(file.read_text())):
            return version[0]
    return "unknown"


def describe_devices() -> dict[str, Any]:
    """Return what a result has to name: the device, how many there are, torch and the driver."""
    import torch

    return {
        "device": torch.cuda.get_device_name(0),
        "devices": count_devices(),
        "torch": torch.__version__,
        "driver": driver_version(),
    }
