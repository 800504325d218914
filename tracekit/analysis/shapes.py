"""Shapes that communication events recorded, as dimensions and bytes.

Comes in: the interned JSON of `Input Dims` and `Input type`. Goes out: tensors' dimensions by row of the event table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from tracekit.analysis.communication_rules import bytes_per_element, size_in_bytes
from tracekit.model.events import ABSENT, EventTable

_DEEPEST = 8  # a list of lists of tensors needs 4

__all__ = ["RecordedShapes", "recorded_shapes"]


@dataclass(frozen=True)
class RecordedShapes:
    """The tensors an event was called with: their dimensions, and their data type where it is known."""

    dtype: str
    tensors: list[list[int]]

    @property
    def elements(self) -> int:
        return sum(math.prod(dims) for dims in self.tensors)

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors, or ABSENT."""
        return size_in_bytes(self.elements, self.dtype) if self.elements else ABSENT


def recorded_shapes(events: EventTable) -> dict[int, RecordedShapes]:
    """Row of each communication event that recorded shapes, to them."""
    arguments = events.collective_arguments
    result = {}
    for row, shapes, types in zip(arguments.row, arguments.input_shapes, arguments.input_types, strict=True):
        if shapes != ABSENT:
            names = _values(events.strings[types]) if types != ABSENT else []
            dtype = next((t for t in names if isinstance(t, str) and bytes_per_element(t)), "")
            result[int(row)] = RecordedShapes(dtype, _tensors(_values(events.strings[shapes])))
    return result


def _values(text: str) -> list[object]:
    """The list that is written in `text`, or an empty one."""
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def _tensors(value: object, depth: int = _DEEPEST) -> list[list[int]]:
    """All lists of integers in a nested list: the dimensions of single tensors and of lists of tensors."""
    if not isinstance(value, list) or not value or not depth:
        return []
    if all(isinstance(item, int) for item in value):
        return [value]
    return [dims for item in value for dims in _tensors(item, depth - 1)]
