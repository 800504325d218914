"""Protobuf bytes from columns: many messages of one size, encoded at once.

A `Shape` is the bytes of a message in which some numbers are left open. A number takes the same room in every message,
as many bytes as the largest needs (a varint may be longer than it must be), so that a column is stored with one strided
assignment and lengths of nested messages are constants:

    0a 1f | 08 .. .. | 12 04 | 10 .. | 18 01       two holes: (3, 2) and (8, 1)

`fixed`, `varint`, `fixed64` and `message` nest like the messages they stand for (`begun_message` is one that goes on in
further records); `records` fills the holes; `woven` puts records of several sizes into one order. Cost: O(rows x
holes), a few numpy passes; temporary memory is a multiple of the output, so callers encode in blocks of rows.
Wire format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tracekit.model.events import Int64
from tracekit.render.trace.slices import Unsigned

Bytes = npt.NDArray[np.uint8]
Records = npt.NDArray[np.void]

__all__ = ["FIXED64", "LENGTH_DELIMITED", "VARINT", "Bytes", "Records", "Shape", "begun_message", "fixed", "fixed64"]
__all__ += ["message", "records", "tag", "varint", "varint_bytes", "width_of", "windows", "woven"]

VARINT, FIXED64, LENGTH_DELIMITED = 0, 1, 2
"""How what follows a tag is written."""
_WIDTHS = (1, 2, 4, 8, 9)  # bytes of a varint that are quick to store; 10 holds all of 64 bits
_WORDS: dict[int, Any] = {1: np.uint8, 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}


class Hole(NamedTuple):
    """Where a number goes: `width` bytes from `offset` on, as a varint or as it is."""

    offset: int
    width: int
    is_varint: bool = True


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Bytes of a part of a message, and its holes in the order in which `records` takes their columns."""

    content: bytes
    holes: tuple[Hole, ...] = ()

    def __add__(self, other: Shape) -> Shape:
        before = len(self.content)
        moved = [Hole(before + offset, width, is_varint) for offset, width, is_varint in other.holes]
        return Shape(content=self.content + other.content, holes=(*self.holes, *moved))


def tag(number: int, wire_type: int) -> bytes:
    """What stands in front of the value of a field."""
    return varint_bytes(number << 3 | wire_type)


def fixed(number: int, value: int) -> Shape:
    """A varint field that has the same value in every message."""
    return Shape(content=tag(number, VARINT) + varint_bytes(value))


def varint(number: int, width: int) -> Shape:
    """A varint field whose value fits into `width` bytes of seven bits (see `width_of`)."""
    return _open_varint(number, VARINT, width)


def fixed64(number: int) -> Shape:
    """A field of eight bytes: fixed64, or a double."""
    before = tag(number, FIXED64)
    return Shape(content=before + bytes(8), holes=(Hole(offset=len(before), width=8, is_varint=False),))


def message(number: int, *parts: Shape) -> Shape:
    """A nested message that holds `parts`."""
    inside = sum(parts, start=Shape(content=b""))
    return Shape(content=tag(number, LENGTH_DELIMITED) + varint_bytes(len(inside.content))) + inside


def begun_message(number: int, inside: Shape, more: Unsigned) -> tuple[Shape, Unsigned]:
    """A nested message that begins with `inside` and has `more` bytes, uint64 [n], behind the record; and its length,
    uint64 [n], which goes into the first of its holes."""
    length = more + np.uint64(len(inside.content))
    return _open_varint(number, LENGTH_DELIMITED, width_of(length)) + inside, length


def width_of(values: Unsigned) -> int:
    """How many bytes a varint takes that holds any of `values`, uint64 [n] (int64 as its two's complement)."""
    bits = int(values.max(initial=np.uint64(0))).bit_length()
    return next((width for width in _WIDTHS if bits <= 7 * width), 10)


def records(shape: Shape, columns: Sequence[Unsigned], rows: int) -> Records:
    """Messages of one shape: void [rows]. `columns`: uint64 [rows] for each hole, which must have room for them."""
    size = len(shape.content)
    filled = np.empty(rows, dtype=f"V{size}")
    filled[:] = np.void(shape.content)
    for hole, values in zip(shape.holes, columns, strict=True):
        _store(filled, hole, values)
    return filled


def woven(parts: Sequence[tuple[Int64, Records]], rows: int) -> Bytes:
    """The bytes of all records, uint8 [total], in the order of their places: each part is (places, int64 [k], records
    [k]), and each of 0 ... rows - 1 is the place of one record or of none.
    """
    size = np.zeros(rows, dtype=np.int64)
    for places, of_part in parts:
        size[places] = of_part.dtype.itemsize
    end = np.cumsum(size)
    out = np.empty(int(end[-1]) if rows else 0, dtype=np.uint8)
    for places, of_part in parts:
        width = of_part.dtype.itemsize
        windows(out, width)[end[places] - width] = of_part
    return out


def windows(content: Bytes | bytes, size: int) -> Records:
    """All records of so many of its bytes, from whichever they begin: they overlap, and are no copies."""
    return np.ndarray((len(content) - size + 1,), dtype=f"V{size}", buffer=content, strides=(1,))


def _open_varint(number: int, wire_type: int, width: int) -> Shape:
    before = tag(number, wire_type)
    return Shape(content=before + bytes(width), holes=(Hole(offset=len(before), width=width),))


def _store(filled: Records, hole: Hole, values: Unsigned) -> None:
    width = min(hole.width, 8)
    low = _as_varint(values, hole.width) if hole.is_varint else values
    _part(filled, hole.offset, width)[:] = low.astype(_WORDS[width], copy=False)
    if hole.width > 8:
        rest = values >> np.uint64(56)
        _part(filled, hole.offset + 8, hole.width - 8)[:] = _as_varint(rest, hole.width - 8).astype(
            _WORDS[hole.width - 8], copy=False
        )


def _part(filled: Records, offset: int, width: int) -> npt.NDArray[Any]:
    """The `width` bytes from `offset` on of every record, as numbers."""
    return np.ndarray(
        (len(filled),), dtype=_WORDS[width], buffer=filled.data, offset=offset, strides=(filled.dtype.itemsize,)
    )


def _as_varint(values: Unsigned, width: int) -> Unsigned:
    """The first eight bytes of each varint as a little-endian number: groups of 28, 14, then 7 bits move apart."""
    spread = values
    for group, shift in ((28, 4), (14, 2), (7, 1)):
        if width * 7 <= group:
            continue
        lower = sum(((1 << group) - 1) << (2 * (group + shift) * k) for k in range(64 // (2 * (group + shift))))
        spread = spread & np.uint64(lower) | (spread & np.uint64(lower << group)) << np.uint64(shift)
    more = sum(0x80 << 8 * byte for byte in range(min(width - 1, 8)))
    return spread | np.uint64(more)


def varint_bytes(value: int) -> bytes:
    """A number >= 0."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
