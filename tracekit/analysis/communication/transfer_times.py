"""How long transfers take: the one definition for the table of collectives, buckets and slow links.

A transfer begins when the last rank's part of it begins. That is at the last arrival, or at the end of the operation
before on a stream or queue, whichever is later. It ends with the last end.

The part of the rank that begins last takes as long as the transfer, if no rank can leave early. Its duration is on one
clock, so it is exact even where clocks are not.
"""

from __future__ import annotations

import numpy as np

from tracekit.model.communication import SYNCHRONISING
from tracekit.model.events import Bool, Int32, Int64

__all__ = ["transfer_times"]

_LONGEST = np.iinfo(np.int64).max


def transfer_times(
    start_ns: Int64, end_ns: Int64, took_ns: Int64, kind: Int32 | Int64, known: Bool, error_ns: int | None
) -> Int64:
    """Return how long the transfer of each of n instances took, int64 [n].

    start_ns, end_ns: of k ranks on the run's clock, int64 [k, n].
    took_ns: the time between them on each rank's own clock, int64 [k, n].
    kind: index into `KINDS`, int [n].
    known: which ranks took part, bool [k, n].
    error_ns: by how much times of two ranks may be off each other; None if they cannot be compared.
    """
    begin_ns = np.where(known, start_ns, np.iinfo(np.int64).min).max(axis=0)
    last_end_ns = np.where(known, end_ns, np.iinfo(np.int64).min).max(axis=0)
    may_be_last = known & (start_ns >= begin_ns - (_LONGEST // 4 if error_ns is None else error_ns))
    result: Int64 = np.where(
        SYNCHRONISING[kind] | (error_ns is None),
        np.where(may_be_last, took_ns, _LONGEST).min(axis=0),
        np.maximum(last_end_ns - begin_ns, 0),
    )
    return result
