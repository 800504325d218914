"""Facts about the machine and the versions that figures were measured with."""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from tracekit import __version__

ROOT = Path(__file__).parents[2]


def facts(hta_python: str, tracelens: Path | None) -> dict[str, Any]:
    return {
        "processor": _processor(),
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "tracekit": __version__,
        "commit": _commit(ROOT),
        "decoder": "native" if native_is_built() else "portable",
        "isal": _version(sys.executable, "isal"),
        "numpy": _version(sys.executable, "numpy"),
        "hta": _version(hta_python, "holistictraceanalysis"),
        "tracelens": None if tracelens is None else _commit(tracelens) or "a folder without history",
    }


def in_words(machine: dict[str, Any]) -> str:
    """Return the facts as one line, to stand below a table."""
    peers = {"isal": machine["isal"], "HTA": machine["hta"], "TraceLens": machine["tracelens"]}
    stated = [
        machine["processor"],
        f"{machine['processors']} processors",
        machine["system"],
        f"Python {machine['python']}",
        f"tracekit {machine['tracekit']} ({machine['commit'] or 'no commit'}, {machine['decoder']} decoder)",
        *(f"{name} {version}" if version else f"no {name}" for name, version in peers.items()),
    ]
    return ", ".join(stated)


def native_is_built() -> bool:
    """Return whether the compiled decoder is built and can be imported."""
    try:
        importlib.import_module("tracekit.read.decode.native")
    except ImportError:
        return False
    return True


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _commit(folder: Path) -> str | None:
    """Return the commit of a checkout, with `+` when files differ from it; None where there is no history."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--exclude=*"]
    # git would state the commit of an enclosing checkout.
    if not (folder / ".git").exists():
        return None
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def _version(python: str, package: str) -> str | None:
    """Return the version of a package that an interpreter has installed; None where it has none."""
    program = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None
