"""Details of slices, texts of JSON objects -> annotations of their events.

Comes in: `Slices`. Goes out: `Details`, bytes that stand behind the fields of the beginnings of slices. Usually a few
hundred texts are distinct of a million slices, and fewer members: what was encoded is kept for the next that is equal.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation, TrackEvent

from tracekit.model.events import Int32, Int64
from tracekit.read.decode.extra_args import is_in_range, split_members
from tracekit.render.perfetto.fields import Interned, ids_used
from tracekit.render.perfetto.wire import FIXED64, LENGTH_DELIMITED, VARINT, tag, varint_bytes
from tracekit.render.trace.slices import Rows, Slices

__all__ = ["DetailEncoder", "Details"]

_KEPT = 10_000  # texts, and members, at a time: a writer may give each slice one of its own
_JSON = json.JSONDecoder(
    parse_int=lambda digits: int(digits) if is_in_range(digits) else digits,
    parse_float=lambda digits: float(digits) if is_in_range(digits) else digits,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Details:
    """`ids`: int32 [m], indexes into strings, or `ABSENT`. `content`: what stands behind the fields for all strings,
    encoded. `starts`, `sizes`: int64 [strings + 1], from which byte on each has its own, and how many; the last,
    without any, is for `ABSENT`.
    """

    ids: Int32
    content: bytes
    starts: Int64
    sizes: Int64

    def sizes_of(self, rows: Rows) -> Int64:
        """Of the rows in `rows`, integers [n]; 0: none."""
        return self.sizes[self.ids[rows]]

    def starts_of(self, rows: Rows) -> Int64:
        return self.starts[self.ids[rows]]


class DetailEncoder:
    """Of one packet sequence."""

    def __init__(self, interned: Interned) -> None:
        self._texts: dict[str, bytes] = {}
        self._annotations = _Annotations(interned)

    def of(self, slices: Slices) -> Details | None:
        """None: no slice has any."""
        if slices.details is None:
            return None
        texts = ids_used(slices.details if slices.rows is None else slices.details[slices.rows], len(slices.strings))
        encoded = [self._object(slices.strings[index]) for index in texts]
        sizes = np.zeros(len(slices.strings) + 1, dtype=np.int64)
        sizes[texts] = [len(each) for each in encoded]
        return Details(ids=slices.details, content=b"".join(encoded), starts=np.cumsum(sizes) - sizes, sizes=sizes)

    def _object(self, text: str) -> bytes:
        if (known := self._texts.get(text)) is not None:
            return known
        encoded = b"".join(map(self._annotations.__getitem__, split_members(text)))
        if len(self._texts) == _KEPT:
            self._texts.clear()
        self._texts[text] = encoded
        return encoded


_ANNOTATION = tag(TrackEvent.DEBUG_ANNOTATIONS_FIELD_NUMBER, LENGTH_DELIMITED)
_NAME = tag(DebugAnnotation.NAME_IID_FIELD_NUMBER, VARINT)
_BOOL = tag(DebugAnnotation.BOOL_VALUE_FIELD_NUMBER, VARINT)
_INT = tag(DebugAnnotation.INT_VALUE_FIELD_NUMBER, VARINT)
_DOUBLE = tag(DebugAnnotation.DOUBLE_VALUE_FIELD_NUMBER, FIXED64)
_TEXT = tag(DebugAnnotation.STRING_VALUE_IID_FIELD_NUMBER, VARINT)


class _Annotations(dict[str, bytes]):
    """Of members of JSON objects, with their keys. The trace processor shows dots and brackets in names as underscores,
    and of names that are equal then one."""

    def __init__(self, interned: Interned) -> None:
        super().__init__()
        self._interned = interned

    def __missing__(self, member: str) -> bytes:
        key, end = _JSON.raw_decode(member)
        name = self._interned.number("debug_annotation_names", key)
        annotation = _NAME + varint_bytes(name) + self._value(member[end + 1 :].strip())
        encoded = _ANNOTATION + varint_bytes(len(annotation)) + annotation
        if len(self) == _KEPT:
            self.clear()
        self[member] = encoded
        return encoded

    def _value(self, written: str) -> bytes:
        """Numbers and truth values as such, of strings the text, of all else the JSON as it is written."""
        match written if written[0] in "[{" else _JSON.decode(written):  # which may be nested deeper than Python goes
            case bool() as value:
                return _BOOL + varint_bytes(value)
            case int() as value:
                return _INT + varint_bytes(value % (1 << 64))
            case float() as value:
                return _DOUBLE + struct.pack("<d", value)
            case value:
                said = value if isinstance(value, str) else written
                return _TEXT + varint_bytes(self._interned.number("debug_annotation_string_values", said))
