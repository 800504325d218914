"""Values of tables as cells of CSV files and workbooks, and back.

Text that a spreadsheet would take for a formula is made inert. Every cell can be turned back into its value.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["as_json", "csv_cell", "inert_text", "is_json", "value_of_csv", "value_of_json"]

# A spreadsheet takes what begins so for a formula; those of East Asian languages also take the wide forms.
_FORMULA_SIGNS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_MARK = "'"  # before text, as spreadsheets write it themselves


def inert_text(text: str) -> str:
    """Return text that no spreadsheet takes for a formula: an apostrophe precedes one that would be."""
    return f"{_MARK}{text}" if text.lstrip().startswith(_FORMULA_SIGNS) or text[:1] in ("\t", "\r") else text


def is_json(column_type: str) -> bool:
    """Return whether the cells of a column of this type are JSON: lists, objects, and values of several types."""
    return column_type.startswith(("list", "dict", "value"))


def as_json(value: object) -> str | None:
    """Return a list, an object, or one value as JSON; None for null."""
    return None if value is None else json.dumps(value, ensure_ascii=False, allow_nan=False)


def value_of_json(cell: str | None) -> Any:
    """Return the value of a cell that `as_json` made."""
    return None if cell is None else json.loads(cell)


def csv_cell(value: object, column_type: str) -> int | float | str | None:
    """Return a value as a cell of a CSV file; None for null, which is an empty cell.

    Text has an apostrophe before it if it begins with one, could be a formula, or is empty where there may be null.
    """
    if value is None:
        return None
    if is_json(column_type):
        return as_json(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if not value:
            return _MARK if column_type.endswith("?") else value
        return f"{_MARK}{value}" if value.startswith(_MARK) else inert_text(value)
    assert isinstance(value, int | float)
    return value


def value_of_csv(cell: str, column_type: str) -> Any:
    """Return the value of a cell that `csv_cell` made."""
    if not cell:
        return "" if column_type == "str" else None
    if is_json(column_type):
        return value_of_json(cell)
    kind = column_type.removesuffix("?")
    if kind == "str":
        return cell.removeprefix(_MARK)
    return cell == "true" if kind == "bool" else {"int": int, "float": float}[kind](cell)
