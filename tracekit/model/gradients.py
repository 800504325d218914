"""When the gradients of DDP modules came, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.events import Int32, Int64

__all__ = ["GradientTimes", "no_gradient_times"]


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientTimes(Columnar):
    """n gradients of one rank, in the order in which they came, of the backward passes that reduce.

    module: int32 [n], among the rank's DDP modules. step: int64 [n]. turn: int32 [n], of the module's reductions in the
    step. place: int32 [n], of the parameter among those of the module's buckets, one bucket after the other. ready_ns:
    int64 [n], when the gradient was in its bucket, on the rank's wall clock. copy_ns: int64 [n], how long the copy into
    the bucket took, and back_ns: int64 [n], the one back out of it when it was reduced. elements: int64 [n].
    compute_ns: int64 [n], how much of the time since the turn's first gradient the rank computed.
    """

    module: Int32
    step: Int64
    turn: Int32
    place: Int32
    ready_ns: Int64
    copy_ns: Int64
    back_ns: Int64
    elements: Int64
    compute_ns: Int64


def no_gradient_times() -> GradientTimes:
    narrow, wide = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    return GradientTimes(
        module=narrow,
        step=wide,
        turn=narrow,
        place=narrow,
        ready_ns=wide,
        copy_ns=wide,
        back_ns=wide,
        elements=wide,
        compute_ns=wide,
    )
