"""Shapes that communication events recorded, as dimensions and bytes.

Comes in: the interned JSON of `Input Dims`, `Input type` and `Concrete Inputs`. Goes out: dimensions of tensors,
peers, and whether a call blocks, by row of the event table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from tracekit.analysis.events.communication_rules import bytes_per_element, size_in_bytes
from tracekit.model.events import ABSENT, Bool, EventTable

_DEEPEST = 8  # a list of lists of tensors needs 4
_DIGITS = 10  # of a rank or a tag

__all__ = ["RecordedShapes", "blocking_calls", "peers_and_tags", "peers_in_group", "recorded_shapes"]


@dataclass(frozen=True)
class RecordedShapes:
    """The tensors an event was called with, by argument: dimensions, and the data type where it is known."""

    dtype: str
    arguments: list[list[list[int]]]

    @property
    def tensors(self) -> list[list[int]]:
        return [dims for argument in self.arguments for dims in argument]

    @cached_property
    def elements_of_arguments(self) -> list[int]:
        """Elements of each argument: an operator's outputs and inputs are different ones."""
        return [sum(math.prod(dims) for dims in argument) for argument in self.arguments]

    @cached_property
    def elements(self) -> int:
        return sum(self.elements_of_arguments)

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors, or ABSENT."""
        return size_in_bytes(self.elements, self.dtype) if self.elements else ABSENT


def recorded_shapes(events: EventTable) -> dict[int, RecordedShapes]:
    """Row of each communication event that recorded shapes, to them."""
    arguments = events.collective_arguments
    parsed: dict[tuple[int, int], RecordedShapes] = {}  # a training loop repeats the same few
    result = {}
    for row, shapes, types in zip(
        arguments.row.tolist(), arguments.input_shapes.tolist(), arguments.input_types.tolist(), strict=True
    ):
        if shapes == ABSENT:
            continue
        if (shapes, types) not in parsed:
            names = _values(events.strings[types]) if types != ABSENT else []
            dtype = next((t for t in names if isinstance(t, str) and bytes_per_element(t)), "")
            parsed[shapes, types] = RecordedShapes(dtype, _arguments(_values(events.strings[shapes])))
        result[row] = parsed[shapes, types]
    return result


def peers_in_group(events: EventTable) -> dict[int, int]:
    """Row of each `c10d::send` and `c10d::recv_` to its peer's place in the group."""
    return {row: peer for row, (peer, _) in peers_and_tags(events).items()}


def peers_and_tags(events: EventTable) -> dict[int, tuple[int, int]]:
    """Row of each `c10d::send` and `c10d::recv_` to its peer's place in the group and the message's tag, the third and
    fourth of its inputs.
    """
    arguments = events.collective_arguments
    point_to_point = events.named({"c10d::send", "c10d::recv_"}.__contains__)
    result = {}
    for row, text in zip(arguments.row.tolist(), arguments.concrete_inputs.tolist(), strict=True):
        if text != ABSENT and point_to_point[row]:
            peer, tag = ((*_values(events.strings[text])[2:4], None, None))[:2]
            if all(isinstance(n, str) and n.isdecimal() and len(n) < _DIGITS for n in (peer, tag)):
                result[row] = (int(str(peer)), int(str(tag)))
    return result


def blocking_calls(events: EventTable) -> Bool:
    """Mask [n]: communication operators that were called with `asyncOp` False (of their inputs the only truth value),
    so that the caller waits for them next. Older versions of torch do not record it.
    """
    arguments = events.collective_arguments
    recorded = arguments.concrete_inputs != ABSENT
    blocks = {
        text: [value for value in _values(events.strings[text]) if value in ("True", "False")] == ["False"]
        for text in np.unique(arguments.concrete_inputs[recorded]).tolist()
    }
    result = np.zeros(len(events), dtype=np.bool_)
    result[arguments.row[recorded]] = [blocks[text] for text in arguments.concrete_inputs[recorded].tolist()]
    return result


def _values(text: str) -> list[object]:
    """The list that is written in `text`, or an empty one."""
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def _arguments(values: list[object]) -> list[list[list[int]]]:
    if values and all(isinstance(value, int) for value in values):
        return [_tensors(values)]
    return [_tensors(value) for value in values]


def _tensors(value: object, depth: int = _DEEPEST) -> list[list[int]]:
    """All lists of integers in a nested list: the dimensions of single tensors and of lists of tensors."""
    if not isinstance(value, list) or not value or not depth:
        return []
    if all(isinstance(item, int) for item in value):
        return [value]
    return [dims for item in value for dims in _tensors(item, depth - 1)]
