"""The collectives of one rank, and the instances of a process group's collectives over all ranks.

`MatchedGroup` is dense, so that questions about instances are array operations. A rank arrives at an instance when it
is ready for it. On the run's clock, the wait of rank r is `max arrival - arrival_r`. The transfer is from the last
start to the last end. From the last arrival to the last start the collective is queued.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tracekit.model.columnar import Columnar
from tracekit.model.events import Int32, Int64

__all__ = [
    "Collectives",
    "MatchedGroup",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Collectives(Columnar):
    """n collectives of one rank, in order of launch; sends and receives are in `Messages`. -1 means not known.

    Before each collective lies a segment, from the last release of the rank until it is ready. A release is the end of
    a collective or receive that the rank waited for; before the first one it is the recording's beginning. Loading data
    between two steps lies inside a segment.

    Attributes:
        group: index into the rank's groups, int32 [n].
        kind: index into `KINDS`, int32 [n].
        sequence: the sequence id in the group, int64 [n].
        step: int64 [n].
        size_bytes: int64 [n].
        dtype: index into `DTYPES`, int32 [n].
        launch_ns: on the rank's wall clock, as all times, int64 [n].
        ready_ns: when the rank was ready: a GPU rank when the kernel was launched and what it depends on had ended; a
            CPU rank at the start. int64 [n].
        start_ns: int64 [n].
        end_ns: int64 [n].
        waited_ns: for how long the rank waited since it was ready, int64 [n]; 0 if a device computed at the end.
        released_ns: when the segment began, int64 [n].
        queued_ns: the end of earlier communication that it queued behind, or -1, int64 [n]. A GPU rank was ready before
            that end; a CPU rank had launched it before that end, and computed on.
        compute_ns: how long the rank computed in the segment, int64 [n].
        data_ns: how long the rank loaded data in the segment, int64 [n].
        operations: how many compute operations or kernels the host had begun or launched in the recording before it,
            int64 [n]. Differences between collectives count what a stretch of the program consists of.
        work_ns: how long these take: of kernels the sum, of operators the time that they cover. int64 [n].
        work: a hash of their names and shapes that does not depend on their order, int64 [n]; differences likewise.
    """

    group: Int32
    kind: Int32
    sequence: Int64
    step: Int64
    size_bytes: Int64
    dtype: Int32
    launch_ns: Int64
    ready_ns: Int64
    start_ns: Int64
    end_ns: Int64
    waited_ns: Int64
    released_ns: Int64
    queued_ns: Int64
    compute_ns: Int64
    data_ns: Int64
    operations: Int64
    work_ns: Int64
    work: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedGroup:
    """m instances of one process group's collectives, with k ranks present.

    Attributes:
        group: index into the run's groups.
        matched_by: by sequence id or by order.
        ranks: ascending, int32 [k].
        row: in each rank's `Collectives`, or -1 where the rank lacks the instance, int64 [k, m].
        kind: index into `KINDS`, int32 [m].
        step: int64 [m].
        size_bytes: or -1, int64 [m].
    """

    group: int
    matched_by: Literal["seq", "order"]
    ranks: Int32
    row: Int64
    kind: Int32
    step: Int64
    size_bytes: Int64
