"""Details of slices, texts of JSON objects -> annotations of their events.

Comes in: `Slices`. Goes out: `Details`, bytes that stand behind the fields of the beginnings of slices. Usually a few
hundred texts are distinct of a million slices, and fewer members: what was encoded is kept for the next that is equal.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import msgspec
import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from tracekit.model.events import Int32, Int64
from tracekit.render.merged.slices import Rows, Slices
from tracekit.render.perfetto.fields import Interned, ids_used

__all__ = ["DetailEncoder", "Details"]

_KEPT = 10_000  # texts, and members, at a time: a writer may give each slice one of its own
_INT64 = range(-(1 << 63), 1 << 63)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _integer(digits: str) -> int | str:
    """Beyond int64, which is all that an annotation holds, the digits: a long text of them Python does not read."""
    return int(digits) if len(digits) <= len(str(_INT64.start)) and int(digits) in _INT64 else digits


def _float(digits: str) -> float | str:
    """Beyond float64 the digits."""
    return value if math.isfinite(value := float(digits)) else digits


_VALUE = json.JSONDecoder(parse_int=_integer, parse_float=_float)


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
        self._interned = interned
        self._texts: dict[str, bytes] = {}
        self._members: dict[tuple[str, bytes], bytes] = {}

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
        encoded = b"".join([self._member(key, bytes(value)) for key, value in _OBJECT.decode(text).items()])
        if len(self._texts) == _KEPT:
            self._texts.clear()
        self._texts[text] = encoded
        return encoded

    def _member(self, key: str, written: bytes) -> bytes:
        """An annotation: numbers and truth values as such, of strings the text, of all else the JSON as it is written.
        The trace processor shows dots and brackets in names as underscores, and of names that are equal then one."""
        if (known := self._members.get((key, written))) is not None:
            return known
        event = TrackEvent()
        annotation = event.debug_annotations.add(name_iid=self._interned.number("debug_annotation_names", key))
        match _VALUE.decode(text := written.decode()):
            case bool() as value:
                annotation.bool_value = value
            case int() as value:
                annotation.int_value = value
            case float() as value:
                annotation.double_value = value
            case value:
                said = value if isinstance(value, str) else text
                annotation.string_value_iid = self._interned.number("debug_annotation_string_values", said)
        encoded: bytes = event.SerializeToString()
        if len(self._members) == _KEPT:
            self._members.clear()
        self._members[key, written] = encoded
        return encoded
