"""`tracekit.schema`: every table and column, once."""

from __future__ import annotations

from typing import get_args

import tracekit
from tests.places import DATA
from tracekit.model.table import Type


def test_columns_are_listed_with_type_unit_and_meaning() -> None:
    listed = tracekit.schema.columns()
    assert list(listed.columns) == ["table", "column", "type", "unit", "meaning"]
    assert len(listed) == sum(len(table.columns) for table in tracekit.schema.TABLES.values())
    assert not listed.duplicated(["table", "column"]).any()
    (row,) = listed[(listed["table"] == "whatif") & (listed["column"] == "saves_ns_per_step")].to_dict("records")
    assert (row["type"], row["unit"]) == ("int", "ns")


def test_every_column_has_a_known_type_and_a_sentence() -> None:
    for table in (*tracekit.schema.TABLES.values(), *tracekit.schema.COMPARISON_TABLES.values()):
        for column in table.columns:
            assert column.type in get_args(Type), (table.name, column.name)
            assert column.meaning.endswith("."), (table.name, column.name)
            assert ("_ns" in column.name) == (column.unit == "ns"), (table.name, column.name)


def test_the_tables_of_a_report_are_those_of_the_schema() -> None:
    report = tracekit.analyze(DATA / "ddp_slow_rank")
    for name, frame in report.tables.items():
        assert list(frame.columns) == [column.name for column in tracekit.schema.TABLES[name].columns]
        assert [str(dtype) for dtype in frame.dtypes] == [c.dtype for c in tracekit.schema.TABLES[name].columns]


def test_a_sheet_of_excel_can_have_the_name_of_each_table() -> None:
    assert [name for name in tracekit.schema.TABLES if len(name) > 31] == []
