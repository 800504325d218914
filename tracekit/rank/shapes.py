"""What communication events recorded of their inputs: shapes, sizes, peers, and whether the call blocks.

The inputs are the interned JSON of `Input Dims`, `Input type` and `Concrete Inputs`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from tracekit.model.events import ABSENT, Bool, EventTable
from tracekit.rank.communication_rules import bytes_per_element, size_in_bytes

_DEEPEST = 8  # levels of nested lists; a list of lists of tensors needs 4
_DIGITS = 10  # of a rank or a tag
MESSAGE_OPERATORS = {"c10d::send": "send", "c10d::recv_": "recv", "c10d::recv_any_source_": "any"}
"""Operators of messages, before which the capture makes a record, and what they do. All but the last show the other
rank's place in their group, and the tag.
"""


@dataclass(frozen=True)
class RecordedShapes:
    """The tensors of an event's inputs.

    Attributes:
        dtype: of the first input whose type is known, else "".
        arguments: the dimensions of every tensor, by argument.
    """

    dtype: str
    arguments: list[list[list[int]]]

    @property
    def tensors(self) -> list[list[int]]:
        return [dims for argument in self.arguments for dims in argument]

    @cached_property
    def elements_of_arguments(self) -> list[int]:
        """Return the number of elements of each argument. An operator's outputs are arguments too."""
        return [sum(math.prod(dims) for dims in argument) for argument in self.arguments]

    @cached_property
    def elements(self) -> int:
        return sum(self.elements_of_arguments)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all tensors, or ABSENT."""
        return size_in_bytes(self.elements, self.dtype) if self.elements else ABSENT


def recorded_shapes(events: EventTable) -> dict[int, RecordedShapes]:
    """Return the recorded shapes by row of the event table."""
    arguments = events.collective_arguments
    parsed: dict[tuple[int, int], RecordedShapes] = {}  # a training loop repeats few shapes
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
    """Return the peer's place in the group, by row of each `c10d::send` and `c10d::recv_`."""
    return {row: peer for row, (peer, _) in peers_and_tags(events).items()}


def peers_and_tags(events: EventTable) -> dict[int, tuple[int, int]]:
    """Return the peer's place in the group and the message's tag, by row of each `c10d::send` and `c10d::recv_`.

    They are the third and fourth input.
    """
    arguments = events.collective_arguments
    point_to_point = events.named(MESSAGE_OPERATORS.__contains__)
    result = {}
    for row, text in zip(arguments.row.tolist(), arguments.concrete_inputs.tolist(), strict=True):
        if text != ABSENT and point_to_point[row]:
            peer, tag = ((*_values(events.strings[text])[2:4], None, None))[:2]
            if all(isinstance(n, str) and n.isdecimal() and len(n) < _DIGITS for n in (peer, tag)):
                result[row] = (int(str(peer)), int(str(tag)))
    return result


def blocking_calls(events: EventTable) -> Bool:
    """Return a mask [n] of the communication operators that were called with `asyncOp` False: the caller waits for them
    next.

    `asyncOp` is the only boolean input. Older versions of torch do not record it.
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
    """Return the list that the JSON `text` holds; an empty one if it holds no list."""
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
    """Return all lists of integers in a nested list: the dimensions of single tensors and of lists of tensors."""
    if not isinstance(value, list) or not value or not depth:
        return []
    if all(isinstance(item, int) for item in value):
        return [value]
    return [dims for item in value for dims in _tensors(item, depth - 1)]
