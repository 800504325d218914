"""What a table is: columns with a type, unit and meaning; rows to plain values or to a DataFrame, and back.

A column whose type ends in `?` may be null: unknown, never zero. Pandas is imported when a DataFrame is read, and
not before: merging and drawing need none, and it is 75 MB and much of the time of a small run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RANK", "Column", "FilledTable", "Frame", "Rows", "Table", "records", "rows_of"]

Type = Literal["int", "int?", "float", "float?", "str", "str?", "list", "list?", "bool"]
Rows = Sequence[Mapping[str, object]]

_DTYPES = {"int": "int64", "int?": "Int64", "float": "float64", "float?": "Float64", "bool": "bool"}
_PLAIN: dict[Type, Callable[[Any], object]] = {"int": int, "int?": int, "float": float, "bool": bool}


@dataclass(frozen=True)
class Column:
    name: str
    type: Type
    unit: str
    meaning: str


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[Column, ...]

    def fill(self, rows: Rows) -> FilledTable:
        return FilledTable(
            columns=self.columns, values=tuple([row[column.name] for row in rows] for column in self.columns)
        )


@dataclass(frozen=True, kw_only=True)
class FilledTable:
    """A table with what is in it: `values` of each column, which are smaller than as many dicts."""

    columns: tuple[Column, ...]
    values: tuple[list[object], ...]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Plain Python values, null as None."""
        names = [column.name for column in self.columns]
        plain = [_plain(column, values) for column, values in zip(self.columns, self.values, strict=True)]
        return [dict(zip(names, row, strict=True)) for row in zip(*plain, strict=True)]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The columns in their order; nullable integers as Int64, nullable floats as Float64, text as objects."""
        import pandas as pd

        data = {
            column.name: pd.Series(values, dtype=_DTYPES.get(column.type, "object"))
            for column, values in zip(self.columns, self.values, strict=True)
        }
        return pd.DataFrame(data, columns=[column.name for column in self.columns])


class Frame:
    """A field of a dataclass that is given rows, or a DataFrame, and is read as a DataFrame; `rows_of` reads rows."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, result: object, owner: type | None = None) -> pd.DataFrame:
        if result is None:
            raise AttributeError(self._name)  # which tells `dataclass` that the field has no default
        table: FilledTable = vars(result)[self._name]
        return table.frame

    def __set__(self, result: object, rows: Rows | pd.DataFrame) -> None:
        # `dataclasses.replace` gives what it read.
        vars(result)[self._name] = self._table.fill(rows if isinstance(rows, Sequence) else records(rows))


def rows_of(result: object, name: str) -> list[dict[str, Any]]:
    """What is in the field `name`, a `Frame`: plain Python values, null as None."""
    table: FilledTable = vars(result)[name]
    return table.rows


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a DataFrame, as `rows_of` gives them."""
    import pandas as pd

    def plain(value: object) -> object:
        return None if value is pd.NA or (isinstance(value, float) and math.isnan(value)) else value

    columns = {str(name): [plain(value) for value in frame[name].tolist()] for name in frame.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _plain(column: Column, values: list[object]) -> list[object]:
    convert = _PLAIN.get(column.type)
    values_or_none = [
        None if value is None or (isinstance(value, float) and math.isnan(value)) else value for value in values
    ]
    return (
        values_or_none if convert is None else [None if value is None else convert(value) for value in values_or_none]
    )


RANK = Column("rank", "int", "", "Global rank.")
