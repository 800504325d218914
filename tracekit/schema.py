"""The tables of a report and of a comparison: which there are, and the type, unit and meaning of each column.

    tracekit.schema.TABLES["ranks"].columns     the columns of a table
    tracekit.schema.columns()                   all of them as a DataFrame, a row a column
    report.tables["ranks"].attrs                the same of one table of a report
    tracekit.schema.COMPARISON_TABLES           the tables of `tracekit.compare`

Types end in `?` where a value may be null, which means unknown and never zero. A `value?` is a boolean, number or
text; a `dict` has texts as keys and holds what JSON can hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from tracekit.comparison import tables as comparison_columns
from tracekit.explain import sections
from tracekit.model.table import Column, FilledTable, Table

if TYPE_CHECKING:
    import pandas as pd


TABLES: Mapping[str, Table] = MappingProxyType({table.name: table for table in sections.TABLES})
"""The tables by name, in the order of a report."""

COMPARISON_TABLES: Mapping[str, Table] = MappingProxyType(
    {table.name: table for table in comparison_columns.COMPARISON_TABLES}
)
"""The tables of a comparison by name."""

COLUMNS = Table(
    "columns",
    (
        Column("table", "str", "", "Name of the table."),
        Column("column", "str", "", "Name of the column."),
        Column("type", "str", "", "int, float, str, bool, list[int], ...; with ? it may be null."),
        Column("unit", "str", "", "Unit of the values; empty for numbers without unit, and for text."),
        Column("meaning", "str", "", "What the values are."),
    ),
)
"""The table that describes all others; it comes with every folder of tables and every workbook."""


def column_table(names: Iterable[str] | None = None) -> FilledTable:
    """Return the columns of the tables with these names, by default of all of them."""
    rows = [
        COLUMNS.row(column, table=name, column=column.name)
        for name in (TABLES if names is None else names)
        for column in TABLES[name].columns
    ]
    return COLUMNS.fill(rows)


def columns() -> pd.DataFrame:
    """Return every column of every table: one row each, with table, column, type, unit and meaning."""
    return column_table().frame
