"""The page of tables: every column of every table, with what the code says of it."""

from __future__ import annotations

from docs.reference.tables import comparison_tables, table_pages
from tracekit.analysis.comparison.columns import COMPARISON_TABLES
from tracekit.analysis.sections import SECTIONS, TABLES


def test_every_column_of_every_table_has_a_row() -> None:
    lines = table_pages().splitlines()

    assert [line for line in lines if line.startswith("### ")].count("### ranks") == 1
    assert sorted(line.removeprefix("### ") for line in lines if line.startswith("### ")) == sorted(
        table.name for table in TABLES
    )
    assert sum(line.startswith("| `") for line in lines) == sum(len(table.columns) for table in TABLES)
    assert "| `step_ns` | int | ns |" in table_pages()


def test_tables_stand_below_their_section() -> None:
    lines = table_pages().splitlines()
    headings = [line for line in lines if line.startswith("#")]

    tables = SECTIONS["pipeline"].tables
    place = headings.index("## Section `pipeline`") + 1
    assert headings[place : place + len(tables)] == [f"### {table.name}" for table in tables]
    assert headings[:2] == ["## Every report", f"### {TABLES[0].name}"]


def test_tables_of_a_comparison_have_all_their_columns() -> None:
    text = comparison_tables()
    for each in COMPARISON_TABLES:
        assert f"### {each.name}\n" in text
        assert all(f"| `{column.name}` | {column.type} |" in text for column in each.columns)


def test_every_column_has_a_meaning() -> None:
    assert [(table.name, column.name) for table in TABLES for column in table.columns if not column.meaning] == []
