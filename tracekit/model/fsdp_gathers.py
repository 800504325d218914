"""All-gathers of FSDP and what the device did around them, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.events import Int32, Int64

__all__ = ["FsdpGathers", "no_fsdp_gathers"]


@dataclass(frozen=True, kw_only=True, eq=False)
class FsdpGathers(Columnar):
    """n all-gathers of one GPU rank in complete steps, in the order in which their modules are used.

    step, size_bytes: int64 [n]. module: object [n], names. phase: int32 [n], index into `PHASES` or -1, of the use.
    ahead: int64 [n], of how many modules compute was launched between its issue and its use.
    transfer_ns: int64 [n], start to end on the device. wait_ns: int64 [n], how long compute that was launched waited
    for it. span_ns: int64 [n], from the first compute of the module to where the next one's could begin; -1 for the
    last of a step. compute_ns: int64 [n], how much of that (to the step's end for the last) is compute. busy_ns: int64
    [n], how long from that first compute to the next module's the stream of the all-gathers is busy with other things.
    drain_ns: int64 [n], for the last of a step from its first compute until that stream is done, -1 for the others.
    """

    step: Int64
    module: np.ndarray
    phase: Int32
    ahead: Int64
    size_bytes: Int64
    transfer_ns: Int64
    wait_ns: Int64
    span_ns: Int64
    compute_ns: Int64
    busy_ns: Int64
    drain_ns: Int64


def no_fsdp_gathers() -> FsdpGathers:
    wide = np.empty(0, dtype=np.int64)
    return FsdpGathers(
        step=wide,
        module=np.empty(0, dtype=object),
        phase=np.empty(0, dtype=np.int32),
        ahead=wide,
        size_bytes=wide,
        transfer_ns=wide,
        wait_ns=wide,
        span_ns=wide,
        compute_ns=wide,
        busy_ns=wide,
        drain_ns=wide,
    )
