"""The page of tables: every column of every table, with what the code says of it."""

from __future__ import annotations

from tracekit.explain.sections import TABLES


def test_every_column_has_a_meaning() -> None:
    assert [(table.name, column.name) for table in TABLES for column in table.columns if not column.meaning] == []
