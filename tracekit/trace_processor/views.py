"""The SQL that makes tracekit's views in a trace processor."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["views_sql"]


def views_sql() -> str:
    """Statements to run once after a merged trace was loaded; every column has a comment: its meaning and unit."""
    return files("tracekit.trace_processor").joinpath("views.sql").read_text(encoding="utf-8")
