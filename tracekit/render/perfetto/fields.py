"""What the beginning of a slice says besides its time and track: names, arguments, arrows.

Comes in: `Slices`, and what the packet sequence has interned so far. Goes out: the fields as columns of numbers, and
which slices have the same ones: these are encoded together, as messages of one size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation, InternedData, TrackEvent

from tracekit.model.events import ABSENT, Bool, Int32, Int64
from tracekit.render.merged.forms import Forms
from tracekit.render.merged.slices import Slices, Unsigned
from tracekit.render.perfetto.wire import Shape, fixed, fixed64, message, varint

__all__ = ["Field", "Interned", "SliceFields", "encodable"]


class Interned:
    """Texts that a packet sequence has given numbers to. `fresh`: those that are not written yet."""

    def __init__(self) -> None:
        self.fresh = InternedData()
        self._numbers: dict[str, dict[str, int]] = {}

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

    def column(self, kind: str, ids: Int32, strings: Sequence[str]) -> Unsigned:
        """uint64 [n]: the numbers of `strings[ids]`, 0 for `ABSENT`."""
        used = np.zeros(len(strings) + 1, dtype=np.bool_)
        used[ids] = True
        numbers = np.zeros(len(strings) + 1, dtype=np.uint64)  # the last entry answers for ABSENT
        for index in np.flatnonzero(used[:-1]).tolist():
            numbers[index] = self.number(kind, strings[index])
        return numbers[ids]


@dataclass(frozen=True, kw_only=True, eq=False)
class Field:
    """A field of n slices: `values`, uint64 [n]; `shape(width)`: how a message holds it."""

    values: Unsigned
    shape: Callable[[int], Shape]
    present: Bool | None = None


class SliceFields:
    """The fields of n slices, and which slices have the same ones."""

    def __init__(self, slices: Slices, interned: Interned) -> None:
        self._fields = list(_fields(slices, interned))
        self._forms = Forms([field.present for field in self._fields], len(slices))

    def by_form(self, rows: Int32) -> Iterator[tuple[Int64, list[Field]]]:
        """The slices in `rows`, int32 [k], that have the same fields: their positions in `rows`, and these fields."""
        for positions, places in self._forms.of(rows):
            yield positions, [self._fields[place] for place in places]


def _fields(slices: Slices, interned: Interned) -> Iterator[Field]:
    for kind, number, ids in (
        ("event_names", TrackEvent.NAME_IID_FIELD_NUMBER, slices.name),
        ("event_categories", TrackEvent.CATEGORY_IIDS_FIELD_NUMBER, slices.category),
    ):
        yield Field(values=interned.column(kind, ids, slices.strings), shape=_number_of(number), present=ids != ABSENT)
    for argument in slices.arguments:
        name = fixed(DebugAnnotation.NAME_IID_FIELD_NUMBER, interned.number("debug_annotation_names", argument.name))
        if argument.is_text:
            ids = argument.values.astype(np.int32, copy=False)
            values = interned.column("debug_annotation_string_values", ids, slices.strings)
            shape = _annotation(name, DebugAnnotation.STRING_VALUE_IID_FIELD_NUMBER)
        else:
            values = argument.values.astype(np.int64, copy=False).view(np.uint64)
            shape = _annotation(name, DebugAnnotation.INT_VALUE_FIELD_NUMBER)
        yield Field(values=values, shape=shape, present=argument.known)
    for flows in slices.flows:
        # The role is not said: an id is that of one arrow alone, which goes on where a further slice has it.
        yield Field(values=flows.ids, shape=_arrow, present=flows.ids != 0)


def _number_of(number: int) -> Callable[[int], Shape]:
    return lambda width: varint(number, width)


def _annotation(name: Shape, value: int) -> Callable[[int], Shape]:
    return lambda width: message(TrackEvent.DEBUG_ANNOTATIONS_FIELD_NUMBER, name, varint(value, width))


def _arrow(_width: int) -> Shape:
    return fixed64(TrackEvent.FLOW_IDS_FIELD_NUMBER)


def encodable(text: str) -> str:
    """Lone surrogates, which JSON can express and UTF-8 cannot, as question marks."""
    return text.encode("utf-8", errors="replace").decode("utf-8")
