"""A training script, run until its probe has written one window, to see what the probe sees.

Comes in: a script and its arguments, and a folder. Goes out: what the probe of this process recorded there, and how the
script ended. The script runs in this process as `python script` would run it; its probes record call 2 (counted from
0). As the next call begins, on every rank at the same point of the program, `WindowWritten` ends it: no
`Exception`, so handlers let it pass, while `finally` blocks run. It runs to its own end where that is not safe: under
`torch.distributed.rpc`, whose servers wait for their clients to leave in order, in processes that the script itself
starts, and when a probe's step is not called on the main thread.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from tracekit.capture.hooks.live_objects import live_instances
from tracekit.capture.hooks.patching import Patch
from tracekit.capture.probe import Probe
from tracekit.capture.recording import Recording
from tracekit.capture.windows import Windows

SCHEDULE = {"TRACEKIT_SKIP": "1", "TRACEKIT_WARMUP": "1", "TRACEKIT_STEPS": "1"}

__all__ = ["SCHEDULE", "WindowWritten", "run_until_window"]


class WindowWritten(BaseException):
    """The window is written, so the script may end."""


def run_until_window(
    script: str, arguments: Sequence[str], folder: Path, *, module: bool = False, whole: bool = False
) -> Literal["window", "end"]:
    """Run `script` (a path, or a module's name) and return how it ended: as its first window was written, or by itself.

    `whole`: in any case by itself. Whatever the script raises passes, SystemExit included.
    """
    os.environ.pop("TRACEKIT", None)
    os.environ.update({**SCHEDULE, "TRACEKIT_PATH": str(folder)})
    # Kineto announces each recording on stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    end = _EndOfWindow()
    if not whole:
        end.install()
    sys.argv = [script, *arguments]
    try:
        if module:
            sys.path.insert(0, os.getcwd())  # noqa: PTH109 - an entry of sys.path is text
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(script).resolve().parent))
            runpy.run_path(script, run_name="__main__")
    except WindowWritten:
        return "window"
    finally:
        end.remove()
        _finish()
    return "end"


class _EndOfWindow:
    """Raises `WindowWritten` as the call after a written window begins."""

    def __init__(self) -> None:
        self._written = False
        self._patches = [
            Patch(Recording, "write", self._write, lasting=True),
            Patch(Windows, "on_call", self._on_call, lasting=True),
        ]

    def install(self) -> None:
        for patch in self._patches:
            patch.apply()

    def remove(self) -> None:
        for patch in self._patches:
            patch.remove()

    def _write(self, write: Callable[..., Path], *args: Any, **kwargs: Any) -> Path:
        written = write(*args, **kwargs)
        self._written = True
        return written

    def _on_call(self, on_call: Callable[..., int], *args: Any, **kwargs: Any) -> int:
        next_call = on_call(*args, **kwargs)
        if self._written and threading.current_thread() is threading.main_thread() and not _serves():
            raise WindowWritten
        return next_call


def _serves() -> bool:
    rpc = sys.modules.get("torch.distributed.rpc")
    return rpc is not None and bool(getattr(rpc, "_is_current_rpc_agent_set", lambda: False)())


def _finish() -> None:
    """Write what is open, and leave the process group if the script did not come to it."""
    for probe in live_instances(Probe)[Probe]:
        probe.finish()
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        with contextlib.suppress(Exception):
            distributed.destroy_process_group()
