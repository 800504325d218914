"""Exposed time, the one definition: every instant in which communication runs and no compute does is charged to one
communication, the one that ends last of those that run then. The step goes on when that does.

So the exposed times of the rows of any table sum to the step's exposed communication, to the ns.

    compute     ####                  ####
    tp              ======                    charged: nothing, as dp ends later
    dp               ============             from its begin to its end; tp is charged for what is before that
"""

from __future__ import annotations

import numpy as np

from tracekit.model.communication import CommunicationEvents
from tracekit.model.events import Int64
from tracekit.model.intervals import Intervals

__all__ = ["exposed_by_event"]


def exposed_by_event(communication: CommunicationEvents, without_compute: Intervals) -> Int64:
    """Return the exposed time that is charged to each of n communication events, int64 [n], in ns.

    `without_compute` is when the rank does not compute, in the steps that count. Of events that end together the first
    to start is charged, as a rule of thumb: nothing tells which one the step waits for.
    """
    order = np.lexsort((communication.end_ns, communication.start_ns))
    start_ns, end_ns = communication.start_ns[order], communication.end_ns[order]
    latest_ns = np.maximum.accumulate(end_ns)
    is_latest = np.diff(latest_ns, prepend=np.iinfo(np.int64).min) > 0
    holder = np.maximum.accumulate(np.where(is_latest, np.arange(len(order)), 0))
    until_ns = np.minimum(np.append(start_ns[1:], np.iinfo(np.int64).max), latest_ns)
    charged_ns = without_compute.covered_ns(start_ns, np.maximum(start_ns, until_ns))
    result = np.zeros(len(order), dtype=np.int64)
    np.add.at(result, order[holder], charged_ns)
    return result
