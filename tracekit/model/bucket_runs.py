"""Reductions of DDP's buckets, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.events import Int32, Int64

__all__ = ["WHOLE", "BucketRuns", "no_bucket_runs"]

WHOLE = -1
"""As an index: not one bucket, but all of them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BucketRuns(Columnar):
    """n reductions of one rank, in order of launch.

    module, index: int32 [n], of the bucket among the rank's DDP modules; index -1: all gradients at once, as before the
    buckets were rebuilt. step: int64 [n]. turn: int32 [n], how many
    times the module has reduced before in the step. On the rank's wall clock, int64 [n]: ready_ns, when the last
    gradient before the launch was there, launch_ns, start_ns, end_ns. exposed_ns: int64 [n], how much of start to end
    no compute covers. added_ns: int64 [n], of that what lies after the end of every reduction before it, so that the
    sum over reductions counts no time twice. size_bytes: int64 [n], as they travel.
    """

    module: Int32
    index: Int32
    step: Int64
    turn: Int32
    ready_ns: Int64
    launch_ns: Int64
    start_ns: Int64
    end_ns: Int64
    exposed_ns: Int64
    added_ns: Int64
    size_bytes: Int64


def no_bucket_runs() -> BucketRuns:
    narrow, wide = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    return BucketRuns(
        module=narrow,
        index=narrow,
        step=wide,
        turn=narrow,
        ready_ns=wide,
        launch_ns=wide,
        start_ns=wide,
        end_ns=wide,
        exposed_ns=wide,
        added_ns=wide,
        size_bytes=wide,
    )
