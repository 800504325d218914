"""How extra arguments of slices, JSON objects as text, are written: as annotations of their events.

Of a million slices usually a few hundred texts are distinct, and fewer of their members. So each is encoded once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tracekit.model.events import Int32
from tracekit.read.decode.field_values import is_in_range, split_members
from tracekit.render.perfetto.fields import Field, Interned, ids_used
from tracekit.render.perfetto.messages import DebugAnnotation, TrackEvent
from tracekit.render.slices import Rows, Slices

_CACHE_SIZE = 10_000  # texts, and members, at a time: a job may give every slice a text of its own
_JSON = json.JSONDecoder(
    parse_int=lambda digits: int(digits) if is_in_range(digits) else digits,
    parse_float=lambda digits: float(digits) if is_in_range(digits) else digits,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class ExtraArgs:
    """Encoded extra arguments of m rows.

    Attributes:
        ids: String ids or `ABSENT`, int32 [m].
        encoded: By string id, the arguments as encoded fields of TrackEvent.
    """

    ids: Int32
    encoded: Mapping[int, bytes]

    def of_rows(self, rows: Rows) -> list[bytes]:
        """Return the encoded arguments of each of the rows, integers [n]; empty where a row has none."""
        return [self.encoded.get(string_id, b"") for string_id in self.ids[rows].tolist()]


class ExtraArgsEncoder:
    """Encodes the extra arguments of one packet sequence."""

    def __init__(self, interned: Interned) -> None:
        self._interned = interned
        self._object = lru_cache(_CACHE_SIZE)(self._encode_object)
        self._member = lru_cache(_CACHE_SIZE)(self._encode_member)

    def encode(self, slices: Slices) -> ExtraArgs | None:
        """Return the slices' extra arguments, or None if no slice has any."""
        if slices.extra_args is None:
            return None
        ids = slices.extra_args
        used = ids_used(ids if slices.rows is None else ids[slices.rows], len(slices.strings))
        return ExtraArgs(ids=ids, encoded={index: self._object(slices.strings[index]) for index in used})

    def _encode_object(self, text: str) -> bytes:
        return b"".join(map(self._member, split_members(text)))

    def _encode_member(self, member: str) -> bytes:
        """Return the annotation of a member of an object: key, colon, value.

        The trace processor shows dots and brackets in names as underscores. Of names that are then equal it shows one.
        """
        key, end = _JSON.raw_decode(member)
        annotation = DebugAnnotation(name_iid=self._interned.number("debug_annotation_names", key))
        self._set_value(annotation, member[end + 1 :].strip())
        encoded: bytes = TrackEvent(debug_annotations=[annotation]).SerializeToString()
        return encoded

    def _set_value(self, annotation: Any, json_text: str) -> None:
        """Set numbers and truth values as such, strings as their text, all else as its JSON."""
        # Arrays and objects are not decoded: they may be nested deeper than Python's recursion limit.
        match json_text if json_text[0] in "[{" else _JSON.decode(json_text):
            case bool() as value:
                annotation.bool_value = value
            case int() as value:
                annotation.int_value = value
            case float() as value:
                annotation.double_value = value
            case value:
                text = value if isinstance(value, str) else json_text
                annotation.string_value_iid = self._interned.number("debug_annotation_string_values", text)


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedTrackRow:
    """The packets of one track row.

    Attributes:
        start_ns: Start of its first slice.
        end_ns: Latest end of its slices.
        slices: Number of its slices.
        packets: The packets as blocks of bytes, to be written one after the other.
    """

    start_ns: int
    end_ns: int
    slices: int
    packets: Iterable[bytes]


Encoder = Callable[[Slices, Sequence[Field], ExtraArgs | None, int], list[EncodedTrackRow]]
"""Takes n > 0 slices, their fields, their extra arguments and the id of the packet sequence. Slices may be left out:
see `slices.track_row_boundaries`."""
