"""How the rows of a result become plain values or a DataFrame, by tables of typed columns with unit and meaning.

A column whose type ends in `?` may be null. Null means unknown, never zero. A `value?` is a boolean, number or text.

Pandas is imported when a DataFrame is read, and not before. Merging and drawing need none, and its import takes 75 MB
and much of the time of a small run.
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

Type = Literal["int", "int?", "float", "float?", "str", "str?", "list", "list?", "bool", "value?"]
Rows = Sequence[Mapping[str, object]]

_DTYPES = {"int": "int64", "int?": "Int64", "float": "float64", "float?": "Float64", "bool": "bool"}
_PLAIN: dict[Type, Callable[[Any], object]] = {"int": int, "int?": int, "float": float, "bool": bool}


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: as in the JSON and in the DataFrame.
        unit: of the values, such as "ns"; "" for a number without unit and for text.
        meaning: one sentence for the user's documentation.
    """

    name: str
    type: Type
    unit: str
    meaning: str


@dataclass(frozen=True)
class Table:
    """The columns that rows of a result must have."""

    name: str
    columns: tuple[Column, ...]

    def fill(self, rows: Rows) -> FilledTable:
        """Return a table of `rows`, of which each has a value for every column."""
        return FilledTable(
            columns=self.columns, values=tuple([row[column.name] for row in rows] for column in self.columns)
        )


@dataclass(frozen=True, kw_only=True)
class FilledTable:
    """The rows of a table, stored by column, which takes less memory than one dict a row.

    Attributes:
        values: the values of each column, in the order of `columns`.
    """

    columns: tuple[Column, ...]
    values: tuple[list[object], ...]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as plain Python values, null as None."""
        names = [column.name for column in self.columns]
        plain = [_plain(column, values) for column, values in zip(self.columns, self.values, strict=True)]
        return [dict(zip(names, row, strict=True)) for row in zip(*plain, strict=True)]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Return the rows as a DataFrame with the columns in their order.

        Nullable integers are Int64, nullable floats are Float64, text and lists are objects.
        """
        import pandas as pd

        data = {
            column.name: pd.Series(values, dtype=_DTYPES.get(column.type, "object"))
            for column, values in zip(self.columns, self.values, strict=True)
        }
        return pd.DataFrame(data, columns=[column.name for column in self.columns])


class Frame:
    """A dataclass field that takes rows or a DataFrame and is read as a DataFrame.

    `rows_of` reads its rows without pandas.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, result: object, owner: type | None = None) -> pd.DataFrame:
        if result is None:
            raise AttributeError(self._name)  # so `dataclass` sees that the field has no default
        table: FilledTable = vars(result)[self._name]
        return table.frame

    def __set__(self, result: object, rows: Rows | pd.DataFrame) -> None:
        # `dataclasses.replace` reads the field as a DataFrame and passes it back.
        vars(result)[self._name] = self._table.fill(rows if isinstance(rows, Sequence) else records(rows))


def rows_of(result: object, name: str) -> list[dict[str, Any]]:
    """Return the rows of the `Frame` field `name` of a result, as plain Python values with None for null."""
    table: FilledTable = vars(result)[name]
    return table.rows


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a DataFrame in the form that `rows_of` gives."""
    import pandas as pd

    def plain(value: object) -> object:
        return None if value is pd.NA or (isinstance(value, float) and math.isnan(value)) else value

    columns = {str(name): [plain(value) for value in frame[name].tolist()] for name in frame.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _plain(column: Column, values: list[object]) -> list[object]:
    """Return the values of one column as plain Python values, with None for null and NaN."""
    convert = _PLAIN.get(column.type)
    values_or_none = [
        None if value is None or (isinstance(value, float) and math.isnan(value)) else value for value in values
    ]
    return (
        values_or_none if convert is None else [None if value is None else convert(value) for value in values_or_none]
    )


RANK = Column("rank", "int", "", "Global rank.")
