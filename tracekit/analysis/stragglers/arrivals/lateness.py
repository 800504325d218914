"""By how much the last rank delays each instance, where others are queued behind communication that it delayed before.

    rank 0  |gradients|gradients|      |==== bucket 0 ====|==== bucket 1 ====|
    rank 1  |   gradients  |   gradients  |== bucket 0 ===|==== bucket 1 ====|
                                          ^ bucket 0 is delayed by rank 1, and with it bucket 1

An instance begins when the last rank is ready and the stream is free. Without the last rank's lateness it had begun
when the others were ready, and the instance before it in the queue had ended without its own delay:

    begin(i) = max(last(i), free(i))
    late(i)  = begin(i) - max(second to last(i), free(i) - late(before i))
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.stats.connected_components import deepest_first
from tracekit.model.columnar import Columnar
from tracekit.model.events import Int64

__all__ = ["ArrivalOrder", "lateness"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrivalOrder(Columnar):
    """When the ranks of n instances were ready and their streams free; int64 [n] each, times on the run's clock.

    Attributes:
        last_ns: when the last rank was ready.
        second_ns: when the second to last was ready; equal to `last_ns` if there is none.
        median_ns: the median of the others.
        free_ns: when the last stream got free of the communication before; far in the past if none was busy.
        busy: place in the run's ranks of the one with that stream, or -1.
        busy_row: of that rank's `Collectives`, or -1.
        error_ns: what the clocks cannot tell apart.
    """

    last_ns: Int64
    second_ns: Int64
    median_ns: Int64
    free_ns: Int64
    busy: Int64
    busy_row: Int64
    error_ns: Int64


def lateness(order: ArrivalOrder, before: Int64) -> tuple[Int64, Int64]:
    """Return two int64 [n] in ns: how much earlier each instance would begin if its last rank had been ready with the
    second to last one, and with the median of the others. Both are 0 where the clocks cannot tell.

    before: int64 [n], the instance that each was queued behind, or -1.
    """
    begin_ns = np.maximum(order.last_ns, order.free_ns)
    late_ns, behind_ns = (
        _beyond(begin_ns - np.maximum(other_ns, order.free_ns), order.error_ns)
        for other_ns in (order.second_ns, order.median_ns)
    )
    for rows in reversed(deepest_first(before)):
        free_ns = order.free_ns[rows] - late_ns[before[rows]]
        for result_ns, other_ns in ((behind_ns, order.median_ns), (late_ns, order.second_ns)):
            apart_ns = begin_ns[rows] - np.maximum(other_ns[rows], free_ns)
            result_ns[rows] = _beyond(apart_ns, order.error_ns[rows])
    return late_ns, behind_ns


def _beyond(apart_ns: Int64, error_ns: Int64) -> Int64:
    return np.where(apart_ns > error_ns, np.maximum(apart_ns, 0), 0)
