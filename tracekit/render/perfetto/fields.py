"""What the beginning of a slice says besides its time and track: names, arguments, arrows.

Comes in: `Slices`, and what the packet sequence has interned so far. Goes out: the fields as columns of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation, InternedData, TrackEvent

from tracekit.model.events import Bool, Int32
from tracekit.render.perfetto.wire import fixed
from tracekit.render.trace.slices import Slices, Unsigned

__all__ = ["Field", "Interned", "encodable", "fields_of", "ids_used"]


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

    def numbers(self, kind: str, ids: Int32, strings: Sequence[str]) -> Unsigned:
        """uint64 [strings + 1]: the numbers of those of `strings` that `ids`, int32 [n], name; the last, 0, is for
        `ABSENT`."""
        numbers = np.zeros(len(strings) + 1, dtype=np.uint64)
        for index in ids_used(ids, len(strings)):
            numbers[index] = self.number(kind, strings[index])
        return numbers


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
    annotation: bytes = b""
    is_fixed64: bool = False


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
                annotation=annotation,
            )
        )
    # The role is not said: an id is that of one arrow alone, which goes on where a further slice has it.
    number = TrackEvent.FLOW_IDS_FIELD_NUMBER
    fields += [Field(number=number, values=flows.ids, is_fixed64=True) for flows in slices.flows]
    return fields


def ids_used(ids: Int32, strings: int) -> list[int]:
    """The `ids`, int32 [n], each once and in order, without `ABSENT`."""
    used = np.zeros(strings + 1, dtype=np.bool_)
    used[ids] = True
    found: list[int] = np.flatnonzero(used[:-1]).tolist()
    return found


def encodable(text: str) -> str:
    """Lone surrogates, which JSON can express and UTF-8 cannot, as question marks; and so zeros, at which the trace
    processor takes a text to end."""
    return text.replace("\0", "?").encode("utf-8", errors="replace").decode("utf-8")
