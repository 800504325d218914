"""Cells of CSV files: inert in a spreadsheet, and each can be turned back into its value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.render.files.tables import csv_cell, inert_text, value_of_csv

FORMULAS = (
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "  =1",
    "\n=cmd|' /C calc'!A0",
    "＝1+1",
    "＋1",
    "－1",
    "＠x",
)


@pytest.mark.parametrize("text", FORMULAS)
def test_what_could_be_a_formula_is_marked_as_text(text: str) -> None:
    assert inert_text(text) == f"'{text}"
    assert csv_cell(text, "str") == f"'{text}"


@pytest.mark.parametrize("text", ["a=b", "layers.0.weight", "2 - 1", "it's", ""])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert inert_text(text) == text


def test_null_and_empty_text_differ_where_both_can_be() -> None:
    assert (csv_cell(None, "str?"), csv_cell("", "str?"), csv_cell("", "str")) == (None, "'", "")
    assert (value_of_csv("", "str?"), value_of_csv("'", "str?"), value_of_csv("", "str")) == (None, "", "")


@pytest.mark.parametrize(
    ("value", "column_type", "cell"),
    [
        (-5, "int", -5),
        (True, "bool", "true"),
        (0.1, "float", 0.1),
        ([1, 2], "list[int]", "[1, 2]"),
        (["=1"], "list[str]", '["=1"]'),
        ("25", "value?", '"25"'),
        (25, "value?", "25"),
        ({"share": 0.5}, "dict", '{"share": 0.5}'),
    ],
)
def test_values_of_each_type_have_a_cell(value: object, column_type: str, cell: object) -> None:
    assert csv_cell(value, column_type) == cell
    assert value_of_csv(str(cell), column_type) == value


@given(text=st.none() | st.text() | st.sampled_from([*FORMULAS, "'", "''", "'=1"]))
def test_any_text_comes_back(text: str | None) -> None:
    cell = csv_cell(text, "str?")
    assert value_of_csv("" if cell is None else str(cell), "str?") == text
    assert cell is None or not str(cell).lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠"))


@given(value=st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_comes_back(value: float) -> None:
    column_type = "int" if isinstance(value, int) else "float"
    assert value_of_csv(repr(csv_cell(value, column_type)), column_type) == value
