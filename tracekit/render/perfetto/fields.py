"""The fields of an event that begins a slice, as columns: name, category, arguments, arrows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.model.events import Bool, Int32, Int64
from tracekit.model.texts import unicode_text
from tracekit.render.perfetto.messages import InternedData
from tracekit.render.slices import Slices, Unsigned


class Interned:
    """Texts that a packet sequence refers to by number.

    Attributes:
        fresh: Texts that have a number and are not written yet.
    """

    def __init__(self) -> None:
        self.fresh = InternedData()
        self._numbers: dict[str, dict[str, int]] = {}

    def number(self, kind: str, text: str) -> int:
        """Return the number of a text, 1 or more. `kind`: a field of InternedData."""
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
        """Return the numbers of those of `strings` that `ids`, int32 [n], name: uint64 [strings + 1]. The others are 0,
        and so is the last, which `ABSENT` indexes."""
        numbers = np.zeros(len(strings) + 1, dtype=np.uint64)
        for index in ids_used(ids, len(strings)):
            numbers[index] = self.number(kind, strings[index])
        return numbers


@dataclass(frozen=True, kw_only=True, eq=False)
class Field:
    """A number that events which begin slices carry, as a column of m rows.

    Attributes:
        name: Name of the field in TrackEvent; in DebugAnnotation if there is an `argument`.
        argument: Interned name of the argument; None: the field belongs to the event.
        values: int64 or uint64 [m], or string ids, int32 [m], if there are `numbers`.
        numbers: Interned numbers by string id, uint64; 0: the field is absent.
        present: Rows that have the field, bool [m]; None: all.
    """

    name: str
    argument: int | None = None
    values: Unsigned | Int64 | Int32
    numbers: Unsigned | None = None
    present: Bool | None = None

    @property
    def is_fixed64(self) -> bool:
        """The field is encoded as eight bytes, not as a varint."""
        return self.name == "flow_ids"

    @property
    def is_repeated(self) -> bool:
        """An event may have the field several times."""
        return self.name in {"category_iids", "flow_ids"}

    @property
    def zero_is_absent(self) -> bool:
        """Interned numbers and ids of arrows are never 0."""
        return self.numbers is not None or self.is_fixed64


def fields_of(slices: Slices, interned: Interned) -> list[Field]:
    """Return the fields that begin the slices, and intern their texts."""
    shown = slice(None) if slices.rows is None else slices.rows
    fields = [
        Field(name=name, values=ids, numbers=interned.numbers(kind, ids[shown], slices.strings))
        for kind, name, ids in (
            ("event_names", "name_iid", slices.name),
            ("event_categories", "category_iids", slices.category),
        )
    ]
    for argument in slices.arguments:
        name = interned.number("debug_annotation_names", argument.name)
        if argument.is_text:
            ids = argument.values.astype(np.int32, copy=False)
            numbers = interned.numbers("debug_annotation_string_values", ids, slices.strings)
            fields.append(
                Field(name="string_value_iid", argument=name, values=ids, numbers=numbers, present=argument.present)
            )
        else:
            values = argument.values.astype(np.int64, copy=False)
            fields.append(Field(name="int_value", argument=name, values=values, present=argument.present))
    # The role of a slice in an arrow is not written. Each arrow has its own id, and ids join slices in order of time.
    fields += [Field(name="flow_ids", values=flows.ids) for flows in slices.flows]
    return fields


def ids_used(ids: Int32, strings: int) -> list[int]:
    """Return the distinct `ids`, int32 [n], in ascending order, without `ABSENT`."""
    used = np.zeros(strings + 1, dtype=np.bool_)
    used[ids] = True
    distinct: list[int] = np.flatnonzero(used[:-1]).tolist()
    return distinct


def encodable(text: str) -> str:
    """Return the text with question marks for lone surrogates and for NULs.

    JSON can express lone surrogates, UTF-8 cannot. The trace processor ends a text at a NUL.
    """
    return unicode_text(text.replace("\0", "?"))
