"""Arrows in Chrome's format: which of an arrow's events is its start, which a step, which its end.

The format wants `s` first and once, then `t`, at last `f`; who writes one rank cannot know whether another rank comes
before. So a rank's writer puts down a guess, one letter in the file, and remembers where. Comes in: when, where and
with which id. Goes out: the letters that have to be changed; none where an arrow begins and ends on one rank, which is
what most do, so that only those between ranks are carried to the process that joins the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from tracekit.model.events import Bool, Int64
from tracekit.render.merged.slices import Unsigned

__all__ = ["FlowEvents", "join_flow_events", "letters", "unsettled"]

START, STEP, END = (ord(letter) for letter in "stf")


@dataclass(frozen=True, kw_only=True)
class FlowEvents:
    """Columns of n events in the order in which they stand in the file. id: uint64; time_ns: int64; letter_at: int64,
    the place of the letter in the file; ends: bool, written as the end of an arrow, else as its start.
    """

    id: Unsigned
    time_ns: Int64
    letter_at: Int64
    ends: Bool

    def __len__(self) -> int:
        return len(self.id)


def join_flow_events(parts: Sequence[FlowEvents]) -> FlowEvents:
    empty = FlowEvents(
        id=np.empty(0, np.uint64),
        time_ns=np.empty(0, np.int64),
        letter_at=np.empty(0, np.int64),
        ends=np.empty(0, np.bool_),
    )
    columns = {f.name: np.concatenate([getattr(part, f.name) for part in (empty, *parts)]) for f in fields(FlowEvents)}
    return FlowEvents(**columns)


def unsettled(events: FlowEvents) -> FlowEvents:
    """Those of one rank whose letters may be wrong: all but the arrows of a start and, not before it, an end."""
    order, first = _by_arrow(events)
    length = np.diff(np.append(np.flatnonzero(first), len(events)))
    ends = events.ends[order]
    starts_at = np.flatnonzero(first)
    settled = (length == 2) & ~ends[starts_at] & ends[np.minimum(starts_at + 1, len(events) - 1)]
    rows = np.sort(order[~np.repeat(settled, length)])
    return FlowEvents(
        id=events.id[rows], time_ns=events.time_ns[rows], letter_at=events.letter_at[rows], ends=events.ends[rows]
    )


def letters(events: FlowEvents) -> np.typing.NDArray[np.uint8]:
    """The right letter of each event, uint8 [n]: the first of an arrow starts it, and one that ends it is its end."""
    order, first = _by_arrow(events)
    right = np.empty(len(events), dtype=np.uint8)
    right[order] = np.where(first, START, np.where(events.ends[order], END, STEP))
    return right


def _by_arrow(events: FlowEvents) -> tuple[Int64, Bool]:
    """Rows by id and time, and at one time as in the file, which is how viewers read them; which are an id's first."""
    order = np.lexsort((events.time_ns, events.id))
    ids = events.id[order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = ids[1:] != ids[:-1]
    return order, first
