"""The SQL that makes tracekit's views in a trace processor."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["views_sql"]


_FILES = ("views.sql", "run_views.sql", "kernel_views.sql")  # each may use the ones before


def views_sql() -> str:
    """Return the statements that create the views of a merged trace, to be run once after it was loaded.

    Every column has a comment with its meaning and unit.
    """
    folder = files("tracekit.trace_processor")
    return "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in _FILES)
