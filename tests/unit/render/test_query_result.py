"""Results of queries as text, JSON and CSV."""

from __future__ import annotations

import json

import pytest

from tracekit.errors import UsageError
from tracekit.render.query_result import SHOWN_ROWS, query_csv, query_json, query_text


def text(columns: list[str], rows: list[tuple[object, ...]], width: int = 80) -> list[str]:
    return [line for line in query_text(columns, rows, width=width, color=False).splitlines() if line]


def test_numbers_are_aligned_right_and_null_is_shown() -> None:
    assert text(["name", "dur"], [("a", 1), (None, 1000), ("[b]c", 0.5)]) == [
        " name   dur",
        " ──────────",
        " a        1",
        " NULL  1000",
        " [b]c   0.5",
        "3 rows",
    ]


def test_no_rows_and_no_columns() -> None:
    assert text(["a"], []) == [" a", " ─", "0 rows"]
    assert text([], []) == ["0 rows"]


def test_rows_that_are_too_wide_are_written_with_a_line_for_each_column() -> None:
    rows = [(1795256091268559120, "x" * 70), (None, "y")]
    assert text(["ts", "name"], rows) == [
        "row 1", "  ts    1795256091268559120", f"  name  {'x' * 70}",
        "row 2", "  ts    NULL", "  name  y",
        "2 rows",
    ]  # fmt: skip
    assert len(text(["ts", "name"], rows, width=120)) == 5


def test_control_characters_in_text_are_escaped() -> None:
    shown = "".join(text(["\x1b[1m"], [("\x1b[2J\u202e",), (b"\x00\xff",)]))
    assert "\x1b" not in shown
    assert "\\x1b[2J\\u202e" in shown
    assert "00ff" in shown


def test_only_the_first_rows_of_many_are_shown() -> None:
    lines = text(["a"], [(i,) for i in range(1234)])
    assert lines[-1] == "1,234 rows (the first 200 are shown; --csv and --json have all)"
    assert len(lines) == 2 + SHOWN_ROWS + 1


def test_json_keeps_large_integers_and_has_no_infinity() -> None:
    document = query_json(["a", "b"], [(2**63 - 1, float("inf")), (b"\xff", "=1")], path="run")
    assert json.loads(document)["rows"] == [{"a": 2**63 - 1, "b": None}, {"a": "ff", "b": "=1"}]


def test_json_with_two_columns_of_one_name_is_refused() -> None:
    with pytest.raises(UsageError, match="two columns are named 'a'") as error:
        query_json(["a", "b", "a"], [], path="run")
    assert "AS" in error.value.hint


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@x", "\tx"])
def test_csv_holds_no_formulas(cell: str) -> None:
    assert query_csv([cell], [(cell,)]).count("'") == 2


def test_csv_quotes_and_keeps_numbers() -> None:
    assert query_csv(["a", "b", "c"], [(-1, 'x,"y"\n', None), (-0.5, b"\x01", "é")]) == (
        'a,b,c\n-1,"x,""y""\n",\n-0.5,01,é\n'
    )


def test_csv_controls_no_terminal() -> None:
    assert query_csv(["\x1b[2J"], [("a\tb\n\r\x1b]8;;x\x07\u202e\x9b",)]) == (
        '\\x1b[2J\n"a\tb\n\\x0d\\x1b]8;;x\\x07\\u202e\\x9b"\n'
    )
