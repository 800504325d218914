"""In which steps of a CPU rank operators may have run that are in its file but cannot be read."""

from __future__ import annotations

import numpy as np

from tracekit.model.events import Bool, Int64

__all__ = ["may_lack_operators"]


def may_lack_operators(start_ns: Int64, end_ns: Int64, lost_ns: Int64) -> Bool:
    """Return which of s steps may lack operators, bool [s].

    start_ns, end_ns: of the steps, int64 [s]. lost_ns: between which times each lost operator began, int64 [k, 2].
    """
    first = np.searchsorted(end_ns, lost_ns[:, 0], side="right")
    # What stands in front of an event that begins a step did not begin in that step.
    stop = np.maximum(
        np.searchsorted(start_ns, lost_ns[:, 0], side="right"), np.searchsorted(start_ns, lost_ns[:, 1], side="left")
    )
    changes = np.zeros(len(start_ns) + 1, dtype=np.int64)
    within = first < stop
    np.add.at(changes, first[within], 1)
    np.add.at(changes, stop[within], -1)
    return np.cumsum(changes[:-1]) > 0
