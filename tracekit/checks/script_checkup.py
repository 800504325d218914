"""Runs a training script until its probe has written one window, to check what the probe sees.

The script runs in this process as `python script` would run it. Its probes record call 2, counted from 0, into a given
folder. As the next call begins, at the same point of the program on every rank, `WindowWritten` ends the script. It is
no `Exception`, so handlers of the script let it pass, and `finally` blocks run.

The script runs to its end where that is not safe: under `torch.distributed.rpc`, whose servers wait for their clients
to leave in order; in processes that the script starts; and if a probe's step is not called on the main thread.
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
from tracekit.capture.probe_object import Probe
from tracekit.capture.recording import Recording
from tracekit.capture.rpc.remote_calls import rpc_ready
from tracekit.capture.windows import Windows

SCHEDULE = {"TRACEKIT_SKIP": "1", "TRACEKIT_WARMUP": "1", "TRACEKIT_STEPS": "1"}

__all__ = ["SCHEDULE", "WindowWritten", "run_until_window"]


class WindowWritten(BaseException):
    """Ends the script after its window was written."""


def run_until_window(
    script: str, arguments: Sequence[str], folder: Path, *, module: bool = False, whole: bool = False
) -> Literal["window", "end"]:
    """Run `script` and return how it ended: "window" after its first window was written, or "end" by itself.

    Args:
        script: a path, or with `module` the name of a module.
        arguments: the script's command line.
        folder: where its probes write.
        module: run it as `python -m` does.
        whole: let it run to its end in any case.

    What the script raises passes, SystemExit included.
    """
    os.environ.pop("TRACEKIT", None)
    os.environ.update({**SCHEDULE, "TRACEKIT_PATH": str(folder)})
    # Kineto logs each recording on stderr.
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
    """Raises `WindowWritten` as the next call after a written window begins."""

    def __init__(self) -> None:
        self._exported = False
        self._patches = [
            Patch(Recording, "export", self._export, lasting=True),
            Patch(Windows, "on_call", self._on_call, lasting=True),
        ]

    def install(self) -> None:
        for patch in self._patches:
            patch.apply()

    def remove(self) -> None:
        for patch in self._patches:
            patch.remove()

    def _export(self, export: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        export(*args, **kwargs)
        self._exported = True  # the rest is written in the background, which `_finish` waits for

    def _on_call(self, on_call: Callable[..., int], *args: Any, **kwargs: Any) -> int:
        next_call = on_call(*args, **kwargs)
        if self._exported and threading.current_thread() is threading.main_thread() and not rpc_ready():
            raise WindowWritten
        return next_call


def _finish() -> None:
    """Write open windows, and leave the process group if the script has not."""
    for probe in live_instances(Probe)[Probe]:
        probe.finish()
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        with contextlib.suppress(Exception):
            distributed.destroy_process_group()
