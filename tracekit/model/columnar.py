"""Tables stored by column: frozen dataclasses whose fields are numpy arrays of one length.

They are compact, can be pickled, and compare by value. A subclass declares the columns and documents them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Self, get_args, get_type_hints

import numpy as np

from tracekit.model.events import ABSENT, Bool, Int64


class Columnar:
    """Base of `@dataclass(frozen=True, kw_only=True, eq=False)` classes whose fields are all arrays [n]."""

    def __len__(self) -> int:
        return len(self._columns()[0])

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        pairs = zip(self._columns(), other._columns(), strict=True)
        return all(np.array_equal(left, right) for left, right in pairs)

    __hash__ = None  # type: ignore[assignment]

    def rows(self, which: Int64 | Bool | slice) -> Self:
        """Return the rows of a mask [n] or a slice, or those at positions int64 [k] in that order."""
        chosen: Any = {field.name: getattr(self, field.name)[which] for field in fields(self)}  # type: ignore[arg-type]
        return type(self)(**chosen)

    @classmethod
    def empty(cls) -> Self:
        """Return a table without rows."""
        dtypes: dict[str, Any] = _dtypes(cls)  # type: ignore[arg-type]  # a class can be hashed
        return cls(**{name: np.empty(0, dtype=dtype) for name, dtype in dtypes.items()})

    @classmethod
    def of_rows(cls, count: int, /, **columns: Any) -> Self:
        """Return a table of `count` rows. A column is an array [n], or the value of all rows.

        Columns that are not given are ABSENT, or False.
        """
        dtypes: dict[str, Any] = _dtypes(cls)  # type: ignore[arg-type]  # a class can be hashed
        given = {
            name: ABSENT if np.issubdtype(dtype, np.integer) else False for name, dtype in dtypes.items()
        } | columns
        return cls(**{name: np.full(count, value, dtype=dtypes[name]) for name, value in given.items()})

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of at least one table, one table after the other."""
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def _columns(self) -> list[np.ndarray]:
        return [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]


def element_type(declared: Any) -> Any:
    """Return the type of the elements of `NDArray[...]`, or None for `np.ndarray`, a column of objects.

    `NDArray[T]` is `ndarray[shape, dtype[T]]` before NumPy 2.5. Since then it is an alias of which `T` is the only
    argument. Raises TypeError for what declares no array.
    """
    if declared is np.ndarray:
        return None
    last = get_args(declared)[-1] if get_args(declared) else None
    (elements,) = get_args(last) or (last,)
    if not (isinstance(elements, type) and issubclass(elements, np.generic)):
        raise TypeError(f"{declared} declares no array")
    return elements


@cache
def _dtypes(table: Any) -> dict[str, Any]:
    """Return the dtype of each column by its declaration: `NDArray[np.int64]`, or `np.ndarray` for a column of
    objects.
    """
    return {name: element_type(hint) or object for name, hint in get_type_hints(table).items()}
