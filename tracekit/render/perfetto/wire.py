"""Protobuf bytes from columns: n messages of the same shape, encoded at once.

A message is a list of `Column`s, one a part (a tag, a value, a length). A column gives every row the same k bytes of
room and says which of them the row really uses, so a field may be absent, or a number short, in some rows:

    row 0   0a 1f | 08 ac 02 | 12 05 ...        data uint8 [n, k]
    row 1   0a 1c | 08 07 .. | 12 05 ...        keep bool  [n, k], False where "..": dropped by `assemble`

`uint_field`, `fixed_field` and `message_field` nest like the messages they stand for. Cost: O(n x width), a few
numpy passes; temporary memory is a multiple of the output, so callers encode in blocks of rows (n >= 1).
Wire format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tracekit.model.events import Bool

Bytes = npt.NDArray[np.uint8]
Unsigned = npt.NDArray[np.uint64]

__all__ = ["Column", "Unsigned", "assemble", "fixed_field", "message_field", "uint_field"]

_VARINT, _LENGTH_DELIMITED = 0, 2


class Column(NamedTuple):
    """Part of n messages. data: uint8 [n or 1, k]; keep: bool [n, k] or None (all); size: bytes kept, int or [n]."""

    data: Bytes
    keep: Bool | None
    size: int | npt.NDArray[np.int64]


def uint_field(number: int, values: Unsigned, present: Bool | None = None) -> list[Column]:
    """A varint field (uint, enum, bool; int64 as its two's complement): values uint64 [n], present bool [n]."""
    columns = [_constant(_tag(number, _VARINT)), _varint(values)]
    return columns if present is None else [_where(column, present) for column in columns]


def fixed_field(number: int, value: int, present: Bool | None = None) -> list[Column]:
    """A varint field that has the same value in every row, or in the rows where `present`, bool [n], is True."""
    column = _constant(_tag(number, _VARINT) + _varint_bytes(value))
    return [column if present is None else _where(column, present)]


def message_field(number: int, columns: Sequence[Column]) -> list[Column]:
    """A nested message (or any length-delimited field) that holds `columns`; its length is written before it."""
    size = sum((column.size for column in columns), start=np.int64(0))
    return [_constant(_tag(number, _LENGTH_DELIMITED)), _varint(np.atleast_1d(size).astype(np.uint64)), *columns]


def assemble(columns: Sequence[Column], rows: int) -> Bytes:
    """The bytes of `rows` messages, one after the other: uint8 [total]."""
    # One broadcast row holds all that is constant; numpy fills it in much faster than column by column.
    data = np.tile(np.concatenate([column.data[0] for column in columns]), (rows, 1))
    keep = np.ones(data.shape, dtype=np.bool_)
    ragged = False
    at = 0
    for column in columns:
        part = slice(at, at + column.data.shape[1])
        at = part.stop
        if len(column.data) > 1:
            data[:, part] = column.data
        if column.keep is not None:
            keep[:, part] = column.keep
            ragged = True
    return data[keep] if ragged else data.reshape(-1)


def _tag(number: int, wire_type: int) -> bytes:
    return _varint_bytes(number << 3 | wire_type)


def _varint_bytes(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _constant(content: bytes) -> Column:
    return Column(np.frombuffer(content, dtype=np.uint8)[np.newaxis, :], None, len(content))


def _varint(values: Unsigned) -> Column:
    low, high = (len(_varint_bytes(int(bound))) for bound in (values.min(), values.max()))
    data = np.empty((len(values), high), dtype=np.uint8)
    rest = values
    for byte in range(high):
        following = rest >> np.uint64(7)
        data[:, byte] = rest & np.uint64(0x7F)
        data[:, byte] |= (following > 0).view(np.uint8) << 7
        rest = following
    if low == high:
        return Column(data, None, high)
    size = np.full(len(values), low, dtype=np.int64)
    for byte in range(low, high):
        size += values >= np.uint64(1 << 7 * byte)
    return Column(data, np.arange(high) < size[:, np.newaxis], size)


def _where(column: Column, present: Bool) -> Column:
    keep = np.broadcast_to(present[:, np.newaxis], (len(present), column.data.shape[1]))
    return Column(column.data, keep if column.keep is None else keep & column.keep, column.size * present)
