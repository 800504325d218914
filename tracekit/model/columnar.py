"""Tables of a summary as columns: a frozen dataclass whose fields are numpy arrays of one length.

Compact and picklable, compared by value. A subclass declares the columns; what they mean stands there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Self, get_args, get_type_hints

import numpy as np

from tracekit.model.events import Bool, Int64

__all__ = ["Columnar"]


class Columnar:
    """Base of `@dataclass(frozen=True, kw_only=True, eq=False)` classes, all of whose fields are arrays [n]."""

    def __len__(self) -> int:
        return len(self._columns()[0])

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        pairs = zip(self._columns(), other._columns(), strict=True)
        return all(np.array_equal(left, right) for left, right in pairs)

    __hash__ = None  # type: ignore[assignment]

    def rows(self, which: Int64 | Bool) -> Self:
        """The rows of a mask [n] or in the order of positions int64 [k]."""
        chosen: Any = {field.name: getattr(self, field.name)[which] for field in fields(self)}  # type: ignore[arg-type]
        return type(self)(**chosen)

    @classmethod
    def empty(cls) -> Self:
        """A table without rows."""
        dtypes: dict[str, Any] = _dtypes(cls)  # type: ignore[arg-type]  # a class can be hashed
        return cls(**{name: np.empty(0, dtype=dtype) for name, dtype in dtypes.items()})

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """The rows of one or more tables, one after the other."""
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def _columns(self) -> list[np.ndarray]:
        return [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]


@cache
def _dtypes(table: Any) -> dict[str, Any]:
    """Of each column, as it is declared: `NDArray[np.int64]`, or `np.ndarray` for one of objects."""
    declared = get_type_hints(table)
    return {name: get_args(get_args(hint)[1])[0] if get_args(hint) else object for name, hint in declared.items()}
