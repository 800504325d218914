"""What the beginning of a slice says besides its time and track: names, arguments, arrows, details.

Comes in: `Slices`, and what the packet sequence has interned so far. Goes out: the fields as columns of numbers, and
the details as bytes, which are the same for many slices.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation, InternedData, TrackEvent

from tracekit.model.events import Bool, Int32, Int64
from tracekit.render.merged.slices import Rows, Slices, Unsigned
from tracekit.render.perfetto.wire import fixed

__all__ = ["Details", "Field", "Interned", "details_of", "encodable", "fields_of"]

_INT64 = range(-(1 << 63), 1 << 63)


def _integer(digits: str) -> int | str:
    """Beyond int64, which is all that an annotation holds, the digits: a long text of them Python does not read."""
    return int(digits) if len(digits) <= len(str(_INT64.start)) and int(digits) in _INT64 else digits


_JSON = json.JSONDecoder(parse_int=_integer)


class Interned:
    """Texts that a packet sequence has given numbers to. `fresh`: those that are not written yet."""

    def __init__(self) -> None:
        self.fresh = InternedData()
        self._numbers: dict[str, dict[str, int]] = {}
        self._details: dict[str, bytes] = {}

    def number(self, kind: str, text: str) -> int:
        """`kind`: a field of InternedData."""
        known = self._numbers.setdefault(kind, {})
        text = encodable(text)
        if text not in known:
            known[text] = len(known) + 1
            entry = getattr(self.fresh, kind).add(iid=known[text])
            if kind == "debug_annotation_string_values":
                entry.str = text.encode()
            else:
                entry.name = text
        return known[text]

    def numbers(self, kind: str, ids: Int32, strings: Sequence[str]) -> Unsigned:
        """uint64 [strings + 1]: the numbers of those of `strings` that `ids`, int32 [n], name; the last, 0, is for
        `ABSENT`."""
        numbers = np.zeros(len(strings) + 1, dtype=np.uint64)
        for index in _used(ids, len(strings)):
            numbers[index] = self.number(kind, strings[index])
        return numbers

    def details(self, text: str) -> bytes:
        """The members of a JSON object as annotations of a TrackEvent: numbers and truth values as such, of strings the
        text, of all else the JSON. The trace processor shows a dot and brackets in names as underscores."""
        if text not in self._details:
            event = TrackEvent()
            for key, value, written in _members(text):
                annotation = event.debug_annotations.add(name_iid=self.number("debug_annotation_names", key))
                match value:
                    case bool():
                        annotation.bool_value = value
                    case int():
                        annotation.int_value = value
                    case float():
                        annotation.double_value = value
                    case _:
                        said = value if isinstance(value, str) else written
                        annotation.string_value_iid = self.number("debug_annotation_string_values", said)
            self._details[text] = event.SerializeToString()
        return self._details[text]


@dataclass(frozen=True, kw_only=True, eq=False)
class Field:
    """A field that the beginnings of slices have: `number` is its own in the event, or in a DebugAnnotation, of which
    `annotation` is what stands before it. The rest is an `Argument`'s. `values`: uint64 (int64 as its two's
    complement), or int32, ids that stand for `numbers`, uint64, whose last one, 0, is for `ABSENT`. `is_fixed64`: 0 is
    none.
    """

    number: int
    values: Unsigned | Int32
    numbers: Unsigned | None = None
    present: Bool | None = None
    place: Int32 | None = None
    annotation: bytes = b""
    is_fixed64: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Details:
    """Annotations that stand behind the fields of a slice. `ids`: int32 [m], indexes into strings, or `ABSENT`.
    `content`: those of all strings, encoded. `starts`, `sizes`: int64 [strings + 1], from which byte on each has
    its own, and how many; the last, without any, is for `ABSENT`.
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


def fields_of(slices: Slices, interned: Interned) -> list[Field]:
    """What the beginnings of slices say; their texts are interned."""
    every = slice(None) if slices.rows is None else slices.rows
    fields = [
        Field(number=number, values=ids, numbers=interned.numbers(kind, ids[every], slices.strings))
        for kind, number, ids in (
            ("event_names", TrackEvent.NAME_IID_FIELD_NUMBER, slices.name),
            ("event_categories", TrackEvent.CATEGORY_IIDS_FIELD_NUMBER, slices.category),
        )
    ]
    for argument in slices.arguments:
        name = interned.number("debug_annotation_names", argument.name)
        annotation = fixed(DebugAnnotation.NAME_IID_FIELD_NUMBER, name).content
        if argument.is_text:
            number = DebugAnnotation.STRING_VALUE_IID_FIELD_NUMBER
            values = argument.values.astype(np.int32, copy=False)
            numbers = interned.numbers("debug_annotation_string_values", values, slices.strings)
        else:
            number = DebugAnnotation.INT_VALUE_FIELD_NUMBER
            values, numbers = argument.values.astype(np.int64, copy=False).view(np.uint64), None
        fields.append(
            Field(
                number=number,
                values=values,
                numbers=numbers,
                present=argument.present,
                place=argument.place,
                annotation=annotation,
            )
        )
    # The role is not said: an id is that of one arrow alone, which goes on where a further slice has it.
    number = TrackEvent.FLOW_IDS_FIELD_NUMBER
    fields += [Field(number=number, values=flows.ids, is_fixed64=True) for flows in slices.flows]
    return fields


def details_of(slices: Slices, interned: Interned) -> Details | None:
    """None: no slice has any. Each distinct text is encoded once in a packet sequence."""
    if slices.details is None:
        return None
    used = _used(slices.details if slices.rows is None else slices.details[slices.rows], len(slices.strings))
    encoded = [interned.details(slices.strings[index]) for index in used]
    sizes = np.zeros(len(slices.strings) + 1, dtype=np.int64)
    sizes[used] = [len(each) for each in encoded]
    return Details(ids=slices.details, content=b"".join(encoded), starts=np.cumsum(sizes) - sizes, sizes=sizes)


def _used(ids: Int32, strings: int) -> list[int]:
    """The `ids`, int32 [n], each once and in order, without `ABSENT`."""
    used = np.zeros(strings + 1, dtype=np.bool_)
    used[ids] = True
    found: list[int] = np.flatnonzero(used[:-1]).tolist()
    return found


def _members(text: str) -> Iterator[tuple[str, object, str]]:
    """Of a JSON object the keys, their values, and the JSON of these as it is written."""
    inside, at = text.strip()[1:-1].strip(), 0
    while at < len(inside):
        key, end = _JSON.raw_decode(inside, at)
        begin = _next_token(inside, end)
        value, end = _JSON.raw_decode(inside, begin)
        yield key, value, inside[begin:end]
        at = _next_token(inside, end)


def _next_token(text: str, at: int) -> int:
    """The place of the next key or value, or the end."""
    while at < len(text) and text[at] in " \t\r\n:,":
        at += 1
    return at


def encodable(text: str) -> str:
    """Lone surrogates, which JSON can express and UTF-8 cannot, as question marks."""
    return text.encode("utf-8", errors="replace").decode("utf-8")
