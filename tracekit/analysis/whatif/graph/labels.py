"""Numbers for what tasks are compared by: the same place of a step, or the same transfer."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.replay.operation_graph import REGATHER, WORK
from tracekit.analysis.whatif.graph.operations import Interner, Interners
from tracekit.analysis.whatif.graph.run_communication import REGATHERED, Communication
from tracekit.model.communication import KINDS
from tracekit.model.events import Int64

__all__ = ["numbers_of_places", "numbers_of_transfers", "roles_of_transfers", "signature_of_step"]


def signature_of_step(interner: Interner, kind: Int64, size_bytes: Int64) -> int:
    """Return a number for what a rank communicates in a step: equal for the same kinds and sizes in order."""
    return interner["signature", kind.tobytes(), size_bytes.tobytes()]


def numbers_of_places(interner: Interner, what: str, signature: Int64, slot: Int64) -> Int64:
    """Return the numbers of tasks at places of steps, in order of time, int64 [k].

    signature: what the rank communicates in the step, int64 [k]. slot: how much of that it has issued, int64 [k].
    """
    result = np.empty(len(signature), dtype=np.int64)
    for number in dict.fromkeys(signature[np.flatnonzero(np.diff(signature, prepend=-1))].tolist()):
        here = signature == number
        result[here] = interner.behind((what, number), slot[here])
    return result


def numbers_of_transfers(
    interners: Interners, communication: Communication, signature: Int64, slot: Int64
) -> tuple[Int64, Int64]:
    """Return kind and comparison class of transfers, int64 [k] each: of one kind and size, among as many ranks.

    Where other ranks and steps may have other sizes, they have to be at the same place of a step as well.
    signature, slot: as in `numbers_of_places`.
    """
    size_bytes = communication.comparable_size_bytes
    columns = (size_bytes, communication.kind, communication.members, np.where(communication.uneven, signature, -1))
    key = np.zeros(len(communication), dtype=np.int64)
    for column in columns:
        if len(column) and (column != column[0]).any():
            values, place = np.unique(column, return_inverse=True)
            key = key * len(values) + place.reshape(-1)
    kinds, classes = np.empty((2, len(communication)), dtype=np.int64)
    for row in np.unique(key, return_index=True)[1].tolist():
        here = key == key[row]
        size, kind, members, of_step = (int(column[row]) for column in columns)
        name = ("transfer", KINDS[kind], size, members)
        for interner, result in ((interners.kinds, kinds), (interners.comparison_classes, classes)):
            uneven = communication.uneven[row]
            result[here] = interner.behind((*name, of_step), slot[here]) if uneven else interner[name]
    return kinds, classes


def roles_of_transfers(communication: Communication) -> Int64 | int:
    """Return the roles of transfers, int64 [k], or that of all of them."""
    again = communication.purpose == REGATHERED
    return np.where(again, REGATHER, WORK) if again.any() else WORK
