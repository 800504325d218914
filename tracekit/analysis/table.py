"""How the rows of a result become plain values or a DataFrame, by tables of typed columns with unit and meaning.

A column whose type ends in `?` may be null. Null means unknown, never zero. A `value?` is a boolean, number or text.
A `dict` has texts as keys and holds what JSON can hold.

Pandas is imported when a DataFrame is read, and not before. Merging and drawing need none, and its import takes 75 MB
and much of the time of a small run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RANK", "Column", "DerivedFrame", "FilledTable", "Frame", "Rows", "Table", "records", "rows_of", "tables_of"]

Type = Literal[
    "int",
    "int?",
    "float",
    "float?",
    "str",
    "str?",
    "bool",
    "value?",
    "list[int]",
    "list[str]",
    "list[str]?",
    "list[dict]",
    "dict",
]
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

    @property
    def dtype(self) -> str:
        """Return the type of the column in a DataFrame."""
        return _DTYPES.get(self.type, "object")


@dataclass(frozen=True)
class Table:
    """The columns that rows of a result must have."""

    name: str
    columns: tuple[Column, ...]

    def fill(self, rows: Rows) -> FilledTable:
        """Return a table of `rows`, of which each has a value for every column."""
        values = tuple([row[column.name] for row in rows] for column in self.columns)
        return FilledTable(name=self.name, columns=self.columns, values=values)


@dataclass(frozen=True, kw_only=True)
class FilledTable:
    """The rows of a table, stored by column, which takes less memory than one dict a row.

    Attributes:
        values: the values of each column, in the order of `columns`.
    """

    name: str
    columns: tuple[Column, ...]
    values: tuple[list[object], ...]

    @property
    def plain_values(self) -> Iterator[list[object]]:
        """Yield the values of each column as plain Python values, null as None."""
        return (_plain(column, values) for column, values in zip(self.columns, self.values, strict=True))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as plain Python values, null as None."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in zip(*self.plain_values, strict=True)]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Return the rows as a DataFrame with the columns in their order.

        Nullable integers are Int64, nullable floats are Float64, text and lists are objects. `attrs` has the name of
        the table, and the unit and the meaning of each column.
        """
        import pandas as pd

        data = {
            column.name: pd.Series(values, dtype=column.dtype)
            for column, values in zip(self.columns, self.values, strict=True)
        }
        frame = pd.DataFrame(data, columns=[column.name for column in self.columns])
        meanings = {column.name: {"unit": column.unit, "meaning": column.meaning} for column in self.columns}
        frame.attrs = {"table": self.name, "columns": meanings}
        return frame


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


class DerivedFrame:
    """A DataFrame that a dataclass has besides its fields: `rows` makes the rows of other fields."""

    def __init__(self, table: Table, rows: Callable[[Any], Rows]) -> None:
        self._table = table
        self._rows = rows

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, result: object, owner: type | None = None) -> pd.DataFrame:
        if result is None:
            raise AttributeError(self._name)
        return self.filled(result).frame

    def filled(self, result: object) -> FilledTable:
        """Return the table of a result."""
        return self._table.fill(self._rows(result))


def tables_of(result: object) -> Iterator[FilledTable]:
    """Yield the tables of a result, and of the results that are fields of it."""
    for value in vars(result).values():
        if isinstance(value, FilledTable):
            yield value
        elif is_dataclass(value) and any(isinstance(field, Frame) for field in vars(type(value)).values()):
            yield from tables_of(value)
    for derived in vars(type(result)).values():
        if isinstance(derived, DerivedFrame):
            yield derived.filled(result)


def rows_of(result: object, name: str) -> list[dict[str, Any]]:
    """Return the rows of the DataFrame `name` of a result, as plain Python values with None for null."""
    derived = vars(type(result)).get(name)
    if isinstance(derived, DerivedFrame):
        return derived.filled(result).rows
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
