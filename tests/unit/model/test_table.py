"""Tables of results: rows as plain values, and columns with their types, also without rows."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass, replace

import pytest

from tracekit.explain.sections import TABLES
from tracekit.explain.step_time import tables
from tracekit.model.table import Column, DerivedFrame, Frame, Table, records, rows_of, tables_of


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_tables_round_trip_rows_and_keep_columns_without_rows(table: Table) -> None:
    assert list(table.fill([]).frame.columns) == [column.name for column in table.columns]
    assert table.fill([]).rows == records(table.fill([]).frame) == []
    value = {
        "int": 2**62,
        "int?": None,
        "float": 0.5,
        "float?": None,
        "str": "x",
        "str?": None,
        "list[int]": [1, 2],
        "list[str]": ["a"],
        "list[str]?": None,
        "list[dict]": [{"at_ns": 1}],
        "dict": {"share": 0.5},
        "bool": True,
        "value?": None,
    }
    row = {column.name: value[column.type] for column in table.columns}
    full = row | {column.name: 2**62 + 1 for column in table.columns if column.type == "int?"}
    full |= {column.name: 0.25 for column in table.columns if column.type == "float?"}
    full |= {column.name: True for column in table.columns if column.type == "value?"}
    table_of_rows = table.fill([row, full])
    assert table_of_rows.rows == records(table_of_rows.frame) == [row, full]


@dataclass(frozen=True, kw_only=True)
class Result:
    ranks: Frame = Frame(tables.MEMORY)
    steps: int


MEMORY = [{"rank": 1} | {column.name: None for column in tables.MEMORY.columns[1:]}]


def test_a_result_can_be_pickled_and_replaced() -> None:
    result = Result(ranks=MEMORY, steps=2)
    for sent in (pickle.loads(pickle.dumps(result)), replace(result, steps=3)):
        assert sent.ranks.equals(result.ranks)
        assert sent.ranks.dtypes.equals(result.ranks.dtypes)
        assert rows_of(sent, "ranks") == MEMORY


def test_columns_of_numbers_have_numeric_dtypes_with_or_without_nulls() -> None:
    columns = tuple(Column(kind, kind, "", "") for kind in ("int", "int?", "float", "float?", "bool"))  # type: ignore[arg-type]
    table = Table("numbers", columns)
    rows = [
        {"int": 1, "int?": None, "float": 1.5, "float?": None, "bool": True},
        {"int": 2, "int?": 3, "float": 2.5, "float?": math.nan, "bool": False},
        {"int": 2, "int?": 3, "float": 2.5, "float?": 0.5, "bool": False},
    ]
    for count in range(len(rows) + 1):
        frame = table.fill(rows[:count]).frame
        assert [str(dtype) for dtype in frame.dtypes] == ["int64", "Int64", "float64", "Float64", "bool"]
    assert frame["float?"].isna().tolist() == [True, True, False]
    assert frame["float?"].sum() == 0.5


SIZES = Table("sizes", (Column("size_bytes", "int", "bytes", "A size."),))


@dataclass(frozen=True, kw_only=True)
class Sized:
    sizes: tuple[int, ...]

    table = DerivedFrame(SIZES, lambda result: [{"size_bytes": size} for size in result.sizes])


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Result
    ranks: Frame = Frame(tables.MEMORY)


def test_a_frame_of_other_fields_has_their_rows() -> None:
    result = Sized(sizes=(3, 4))
    assert result.table["size_bytes"].tolist() == [3, 4]
    assert rows_of(result, "table") == [{"size_bytes": 3}, {"size_bytes": 4}]
    assert rows_of(replace(result, sizes=(5,)), "table") == [{"size_bytes": 5}]


def test_the_tables_of_a_result_are_its_own_and_those_of_results_within() -> None:
    assert [table.name for table in tables_of(Sized(sizes=(1,)))] == ["sizes"]
    assert [len(table.rows) for table in tables_of(Outer(inner=Result(ranks=MEMORY, steps=1), ranks=[]))] == [1, 0]
