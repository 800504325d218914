"""All tables of a report with their columns, by section, and those of a comparison."""

from __future__ import annotations

from collections.abc import Iterator

from docs.reference.markdown import code, table
from tracekit.comparison.tables import COMPARISON_TABLES
from tracekit.explain.sections import SECTIONS, TABLES
from tracekit.model.table import Table

__all__ = ["comparison_tables", "table_pages"]


def table_pages() -> str:
    """Return a chapter for each section of the report, with all columns of its tables."""
    return "\n\n".join(_chapters())


def comparison_tables() -> str:
    """Return the columns of the tables of a comparison."""
    return "\n\n".join(text for each in COMPARISON_TABLES for text in _table(each))


def _chapters() -> Iterator[str]:
    of_sections = {each.name for section in SECTIONS.values() for each in section.tables}
    yield "## Every report"
    for each in TABLES:
        if each.name not in of_sections:
            yield from _table(each)
    for section in SECTIONS.values():
        if section.tables:
            yield f"## Section {code(section.name)}"
        for each in section.tables:
            yield from _table(each)


def _table(columns_of: Table) -> Iterator[str]:
    yield f"### {columns_of.name}"
    if columns_of.display is not None:
        yield f"What people see of it: *{columns_of.display.title.partition(' (')[0]}*."
    rows = [(code(column.name), column.type, column.unit, column.meaning) for column in columns_of.columns]
    yield table(("column", "type", "unit", "meaning"), rows)
