"""The SQL views of a merged trace, from the comments above them and above their columns."""

from __future__ import annotations

from docs.reference.markdown import code, table
from tracekit.trace_processor.processor import views_sql
from tracekit.trace_processor.views import parse_views

__all__ = ["view_pages"]


def view_pages() -> str:
    """Return a chapter for each view."""
    chapters = []
    for view in parse_views(views_sql()):
        rows = [(code(name), code(kind), meaning) for name, kind, meaning in view.columns]
        chapters += [f"## {view.name}", view.meaning, table(("column", "type", "meaning"), rows)]
    return "\n\n".join(chapters)
