"""What a table is: columns with a type, unit and meaning; rows to a DataFrame and back.

A column whose type ends in `?` may be null: unknown, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RANK", "Column", "Table", "records"]

Type = Literal["int", "int?", "float", "float?", "str", "str?", "list", "list?", "bool"]
_DTYPES = {"int": "int64", "int?": "Int64", "float": "float64", "float?": "object", "bool": "bool"}


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

    def frame(self, rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
        """These columns in this order; nullable integers as Int64, text and nullable floats as objects."""
        import pandas as pd  # here: workers do not pay for it

        names = [column.name for column in self.columns]
        data = {
            column.name: pd.Series([row[column.name] for row in rows], dtype=_DTYPES.get(column.type, "object"))
            for column in self.columns
        }
        return pd.DataFrame(data, columns=names)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain Python values, null as None: the inverse of `Table.frame`."""
    import pandas as pd

    def plain(value: object) -> object:
        return None if value is pd.NA or (isinstance(value, float) and math.isnan(value)) else value

    columns = {str(name): [plain(value) for value in frame[name].tolist()] for name in frame.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


RANK = Column("rank", "int", "", "Global rank.")
