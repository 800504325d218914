"""Arrows between the slices of one rank: a launch and what it launched, a forward operator and its backward.

Comes in: the rank's events and lanes. Goes out: `Arrows`, columns over all events; `of_rows` makes flows of those that
stand on one track. An arrow always leads forward in time: where clocks of host and device disagree there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracekit.analysis.device_links import DeviceEvents
from tracekit.model.events import ABSENT, Bool, EventTable, Int64
from tracekit.render.merged.slices import ROLES, Flows

__all__ = ["Arrows", "autograd_arrows", "first_id", "launch_arrows"]

_OWN_BITS = 40  # of an id, for what is numbered within a rank


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrows:
    """Of n events: ids, uint64 [n], 0: none, and role, uint8 [n], place in `ROLES`."""

    ids: npt.NDArray[np.uint64]
    role: npt.NDArray[np.uint8]

    def of_rows(self, rows: Int64) -> tuple[Flows, ...]:
        """Of the events in `rows`, int64 [k], alone."""
        ids = self.ids[rows]
        return (Flows(ids=ids, role=self.role[rows]),) if ids.any() else ()


def first_id(place: int, kind: int) -> int:
    """The first of the ids of one kind (0 ... 3) that belong to the rank at this place."""
    return (4 * place + kind + 1) << _OWN_BITS


def launch_arrows(events: EventTable, device: DeviceEvents, kept: Bool, *, ids_from: int) -> Arrows:
    """From each launch to all that it launched, in order of time, of the events in the mask `kept` [n]."""
    linked = device.linked
    return _arrows(events, device.launch_row[linked], device.row[linked], kept, ids_from=ids_from)


def autograd_arrows(events: EventTable, kept: Bool, *, ids_from: int) -> Arrows:
    """From each forward operator to its backward, of the events in the mask `kept` [n].

    They share a sequence number. Of the operators that have it the backward is the outermost, the forward the last
    that began before. Source: `generate_forward_backward_link`, torch/csrc/profiler/kineto_shim and collection.
    """
    rows = np.flatnonzero((events.sequence_number != ABSENT) & kept)
    rows = rows[np.lexsort((-events.duration_ns[rows], events.start_ns[rows], events.sequence_number[rows]))]
    number, backward = events.sequence_number[rows], events.forward_thread[rows] > 0
    place = np.arange(len(rows))
    last_forward = np.maximum.accumulate(np.where(backward, -1, place))
    forward = np.where(last_forward >= 0, rows[last_forward], ABSENT)
    same = (last_forward >= 0) & (number[last_forward] == number)
    # An operator inside the one before it, of the same number, is a part of the same backward.
    inside = np.zeros(len(rows), dtype=np.bool_)
    inside[1:] = backward[:-1] & (number[1:] == number[:-1]) & (events.start_ns[rows[1:]] < events.end_ns[rows[:-1]])
    found = backward & same & ~inside
    return _arrows(events, forward[found], rows[found], kept, ids_from=ids_from)


def _arrows(events: EventTable, head: Int64, member: Int64, kept: Bool, *, ids_from: int) -> Arrows:
    """From each row in `head`, int64 [k], to the row in `member`, int64 [k]; of several members through the earlier."""
    ids = np.zeros(len(events), dtype=np.uint64)
    role = np.zeros(len(events), dtype=np.uint8)
    drawn = kept[head] & kept[member] & (events.start_ns[head] <= events.start_ns[member])
    head, member = head[drawn], member[drawn]
    order = np.lexsort((events.start_ns[member], head)) if len(head) else np.empty(0, dtype=np.int64)
    head, member = head[order], member[order]
    ids[head] = (head + (ids_from + 1)).astype(np.uint64)
    ids[member] = ids[head]
    goes_on = np.append(head[1:] == head[:-1], False)[: len(head)]
    role[member] = np.where(goes_on, ROLES.index("passes"), ROLES.index("ends"))
    return Arrows(ids=ids, role=role)
