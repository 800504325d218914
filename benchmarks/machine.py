"""Where and of what figures were taken: they mean nothing without it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from tracekit import __version__

__all__ = ["facts", "in_words"]

ROOT = Path(__file__).parents[1]


def facts() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "tracekit": __version__,
        "commit": _commit(),
        "numpy": _version("numpy"),
        "isal": _version("isal"),
    }


def in_words(machine: dict[str, Any]) -> str:
    """One line below a table."""
    return (
        f"{machine['processor']}, {machine['processors']} processors, {machine['system']}, Python {machine['python']}, "
        f"isal {machine['isal'] or 'not installed'}; tracekit {machine['tracekit']}, {machine['commit'] or 'no commit'}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _commit() -> str | None:
    """With `+` when files differ from it."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
