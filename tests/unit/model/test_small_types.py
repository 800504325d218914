"""Small types that all packages use: notes, ranges, errors, tables."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError, dataclass, replace
from types import NoneType

import numpy as np
import pytest

from tracekit.analysis.sections import TABLES
from tracekit.analysis.step_time import columns
from tracekit.analysis.table import Column, Frame, Table, records, rows_of
from tracekit.errors import InputError, NotATraceError, OutputError, TracekitError, UsageError
from tracekit.model.communication import KINDS
from tracekit.model.notes import Note
from tracekit.model.ranks import format_ranges
from tracekit.render.safe_text import safe_text


def test_a_note_has_a_known_kind_and_takes_its_rank_once() -> None:
    note = Note(kind="truncated", severity="warning", text="a.json: cut off", file="a.json")
    assert note.about_rank(None) is note
    about = note.about_rank(3)
    assert (about.rank, about.text) == (3, "rank 3: a.json: cut off")
    assert about.about_rank(4) is about
    with pytest.raises(ValueError, match="oops"):
        Note(kind="oops", severity="info", text="")


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], "none"), ([5], "5"), ([2, 0, 1], "0-2"), ([0, 1, 3, 7, 8], "0-1,3,7-8"), ([0, 2] * 2, "0,2"),
     (range(0, 40, 2), "0,2,4,6,8,10,12,14,...")],
)  # fmt: skip
def test_format_ranges(numbers: list[int], text: str) -> None:
    assert format_ranges(set(numbers)) == text


@pytest.mark.parametrize("kind", [TracekitError, UsageError, InputError, NotATraceError, OutputError])
def test_errors_can_be_pickled(kind: type[TracekitError]) -> None:
    error = pickle.loads(pickle.dumps(kind("what: happened", hint="do this")))
    assert type(error) is kind
    assert (error.message, error.hint, str(error)) == ("what: happened", "do this", "what: happened (do this)")
    assert kind.exit_code in {2, 3, 4}


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
        "list": ["a"],
        "list?": None,
        "bool": True,
    }
    row = {column.name: value[column.type] for column in table.columns}
    full = row | {column.name: 2**62 + 1 for column in table.columns if column.type == "int?"}
    full |= {column.name: 0.25 for column in table.columns if column.type == "float?"}
    table_of_rows = table.fill([row, full])
    assert table_of_rows.rows == records(table_of_rows.frame) == [row, full]


@dataclass(frozen=True, kw_only=True)
class Result:
    ranks: Frame = Frame(columns.MEMORY)
    steps: int


MEMORY = [{"rank": 1} | {column.name: None for column in columns.MEMORY.columns[1:]}]


def test_a_result_takes_rows_and_returns_the_same_frame_each_time() -> None:
    result = Result(ranks=MEMORY, steps=2)
    assert result.ranks is result.ranks
    assert result.ranks["rank"].tolist() == [1]
    assert rows_of(result, "ranks") == MEMORY
    with pytest.raises(FrozenInstanceError):
        result.ranks = MEMORY  # type: ignore[misc]
    with pytest.raises(TypeError, match="ranks"):
        Result(steps=2)


def test_a_result_can_be_pickled_and_replaced() -> None:
    result = Result(ranks=MEMORY, steps=2)
    for sent in (pickle.loads(pickle.dumps(result)), replace(result, steps=3)):
        assert sent.ranks.equals(result.ranks)
        assert sent.ranks.dtypes.equals(result.ranks.dtypes)
        assert rows_of(sent, "ranks") == MEMORY


def test_rows_are_plain_values_for_numpy_inputs() -> None:
    columns = tuple(Column(kind, kind, "", "") for kind in ("int", "int?", "float", "float?", "bool"))  # type: ignore[arg-type]
    table = Table("numbers", columns)
    row = {"int": np.int64(1), "int?": np.int32(2), "float": 3, "float?": math.nan, "bool": np.True_}
    (plain,) = table.fill([row, row]).rows[1:]
    assert plain == {"int": 1, "int?": 2, "float": 3.0, "float?": None, "bool": True}
    assert [type(value) for value in plain.values()] == [int, int, float, NoneType, bool]


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


def test_safe_text_escapes_what_a_terminal_would_obey() -> None:
    assert safe_text("plain 中文 é — 😀") == "plain 中文 é — 😀"
    assert safe_text("\x1b[2J\r\n\t\x7f\x9b") == "\\x1b[2J\\x0d\\x0a\\x09\\x7f\\x9b"
    assert safe_text("\u202e\u2066\u200b\ufeff\ud800\U000e0001") == "\\u202e\\u2066\\u200b\\ufeff\\ud800\\U000e0001"


def test_kinds_are_distinct() -> None:
    assert len(set(KINDS)) == len(KINDS)
