"""How the rows of a result become plain values, text or a DataFrame, by tables of typed columns.

A column says what its values are and how they are shown; a table says which of its columns people see, and under which
title. `render/grid.py` makes tables of text from that, for every output.

A column whose type ends in `?` may be null. Null means unknown, never zero. A `value?` is a boolean, number or text.
A `dict` has texts as keys and holds what JSON can hold.

Pandas is imported when a DataFrame is read, and not before. Merging and drawing need none, and its import takes 75 MB
and much of the time of a small run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from tracekit.model.run import format_ranges
from tracekit.model.texts import figures, file_size, milliseconds, percent, shortened

if TYPE_CHECKING:
    import pandas as pd


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
Form = Literal["text", "words", "name", "number", "factor", "ms", "change", "s", "size", "GB/s", "share"]
"""How a value is written. "words": without underscores. "name": a number that names something, as a rank does.
"change": milliseconds with their sign."""
Rows = Sequence[Mapping[str, object]]

_FORM_OF_UNIT: dict[str, Form] = {"ns": "ms", "bytes": "size", "ratio": "share", "B/s": "GB/s"}
_SCALE: dict[Form, float] = {"ms": 1e6, "change": 1e6, "s": 1e9, "GB/s": 1e9, "share": 0.01}
_UNIT_IN_NAME = re.compile(r"_(ns|bytes|bps|ratio)$")
_NAMED = re.compile(r"(^|_)(rank|step|stage|index|id|attempt|microbatch)$")
_TEXT: dict[Form, Callable[[Any, int | None], str]] = {
    "text": lambda value, digits: _text(value),
    "words": lambda value, digits: str(value).replace("_", " "),
    "name": lambda value, digits: str(value),
    "number": lambda value, digits: figures(value) if digits is None else f"{value:,.{digits}f}",
    "factor": lambda value, digits: f"{value:.{2 if digits is None else digits}f}",
    "ms": lambda value, digits: milliseconds(value, 2 if digits is None else digits),
    "change": lambda value, digits: milliseconds(value, 2 if digits is None else digits, "+"),
    "s": lambda value, digits: f"{value / 1e9:,.{2 if digits is None else digits}f}",
    "size": lambda value, digits: file_size(value),
    "GB/s": lambda value, digits: figures(value / 1e9) if digits is None else f"{value / 1e9:,.{digits}f}",
    "share": lambda value, digits: percent(value, digits or 0),
}
_DTYPES = {"int": "int64", "int?": "Int64", "float": "float64", "float?": "Float64", "bool": "bool"}
_PLAIN: dict[Type, Callable[[Any], object]] = {"int": int, "int?": int, "float": float, "bool": bool}


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: as in the JSON and in the DataFrame.
        unit: of the values, such as "ns"; "" for a number without unit and for text.
        meaning: one sentence for the user's documentation.
        title: the head of the column where people read it; None for its name without the unit.
        form: how a value is written; None for what its unit and type suggest, such as ns as milliseconds.
        digits: after the point; None for as many as the form usually has.
        null: what stands for an unknown value.
        longest: characters of a text; what is longer loses its beginning, since the ends of names tell them apart.
    """

    name: str
    type: Type
    unit: str
    meaning: str
    _: KW_ONLY
    title: str | None = None
    form: Form | None = None
    digits: int | None = None
    null: str = "n/a"
    longest: int | None = None

    @property
    def heading(self) -> str:
        """Return the head of the column."""
        return _UNIT_IN_NAME.sub("", self.name).replace("_", " ") if self.title is None else self.title

    @property
    def scale(self) -> float:
        """Return what is written as 1."""
        return _SCALE.get(self._form, 1.0)

    @property
    def is_number(self) -> bool:
        """Return whether its values are numbers, which are aligned right."""
        return self.type.startswith(("int", "float"))

    def text(self, value: object) -> str:
        """Return a value as people read it; None is `null`."""
        if value is None:
            return self.null
        text = _TEXT[self._form](value, self.digits)
        return text if self.longest is None else shortened(text, self.longest, keep="end")

    @property
    def _form(self) -> Form:
        if self.form is not None or not self.is_number:
            return self.form or "text"
        return _FORM_OF_UNIT.get(self.unit) or ("name" if _NAMED.search(self.name) else "number")

    @property
    def dtype(self) -> str:
        """Return the type of the column in a DataFrame."""
        return _DTYPES.get(self.type, "object")


@dataclass(frozen=True)
class Display:
    """How people see the rows of a table.

    Attributes:
        title: with the unit of its times. It may name columns in braces, which say something of the first row.
        cells: of a row, with bars between them. A cell is the name of a column, or a text with columns in braces, such
            as `{worst_rank}: {worst_ns}`. `{total_ns/steps}` is a quotient, `{idle_ns%step_ns}` a share of another
            column, `{total_ns-idle_ns}` a difference. `title=` before a cell is another head. A question mark behind it
            leaves the cell out where no row has a value for it.
        bars: of what the bars of a picture consist, as cells are written; a picture has a bar for each row.
        most: rows that are shown; None for all.
        least: the share of which a row has at least 1 % where it is shown; None for all rows.
        sort: the column by which the largest come first; None for the order of the result.
    """

    title: str
    cells: str
    _: KW_ONLY
    bars: str = ""
    most: int | None = None
    least: str | None = None
    sort: str | None = None


@dataclass(frozen=True)
class Table:
    """The columns that rows of a result must have.

    Attributes:
        display: how people see them; None for a table that only programs read.
        in_json: whether the JSON result has the rows under the table's name.
    """

    name: str
    columns: tuple[Column, ...]
    display: Display | None = None
    _: KW_ONLY
    in_json: bool = True

    def row(self, source: object, **others: object) -> dict[str, object]:
        """Return a row of the values that are given, and for other columns of the attributes of `source`."""
        row = {
            each.name: others[each.name] if each.name in others else getattr(source, each.name) for each in self.columns
        }
        return {name: list(value) if isinstance(value, tuple) else value for name, value in row.items()}

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


def _text(value: object) -> str:
    """Return a text, the numbers or texts of a list, or whether something is so."""
    if isinstance(value, list):
        return ", ".join(value) if value and isinstance(value[0], str) else format_ranges(value)
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


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
