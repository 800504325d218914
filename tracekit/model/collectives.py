"""Collectives of one rank, and of a run: who was when in which instance.

`Collectives` is what a worker keeps of one rank. `MatchedGroup` holds one process group's instances over ranks, dense,
so that questions about them are array operations: on the run's clock an instance's `arrival_r` is its start on rank r,
`wait_r = max arrival - arrival_r`, `transfer = end - max arrival`.
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
    """n collectives of one rank, in order of launch; sends and receives are in `Messages`. -1 is not known.

    group: int32 [n], index into the rank's groups. kind: int32 [n], index into `KINDS`. sequence, step, size_bytes:
    int64 [n]. dtype: int32 [n], index into `DTYPES`. launch_ns, start_ns, end_ns: int64 [n], on the rank's wall clock.

    What the rank did from `released_ns` (int64 [n]), when it was last released from a collective or receive it waited
    for, else the recording began, to `start_ns` (loading data between two steps is inside): compute_ns (of it in
    compute), data_ns (loading data), operations (how many compute operations or kernels began), and work, a hash of
    their names and shapes without order: int64 [n]. queued_ns, int64 [n]: the end of the communication that it had to
    let pass, launched though it was while the rank computed on, or -1.
    """

    group: Int32
    kind: Int32
    sequence: Int64
    step: Int64
    size_bytes: Int64
    dtype: Int32
    launch_ns: Int64
    start_ns: Int64
    end_ns: Int64
    released_ns: Int64
    queued_ns: Int64
    compute_ns: Int64
    data_ns: Int64
    operations: Int64
    work: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedGroup:
    """m instances of one process group, of which k ranks are present.

    group: index into the run's groups. ranks: int32 [k], ascending. row: int64 [k, m], into each rank's `Collectives`,
    -1 where the rank lacks the instance. kind: int32 [m], step: int64 [m], size_bytes: int64 [m] (-1: not known).
    """

    group: int
    matched_by: Literal["seq", "order"]
    ranks: Int32
    row: Int64
    kind: Int32
    step: Int64
    size_bytes: Int64
