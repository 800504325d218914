"""Where the time of a GPU rank's host is cut, before it is known what it launched between the cuts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.whatif.per_rank.kernel_starts import KernelStarts
from tracekit.model.columnar import Columnar
from tracekit.model.events import ABSENT, Int64

__all__ = ["Cuts", "plain_cuts"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Cuts(Columnar):
    """k cuts; the columns are those of `LaunchSegments`. position: how many kernels were launched before, int64 [k]."""

    what: Int64
    position: Int64
    begin_ns: Int64
    until_ns: Int64
    awaited_kernel_ns: Int64
    awaited_communication_ns: Int64
    communication_end_ns: Int64
    needs_kernels: Int64


def plain_cuts(
    what: int, begin_ns: Int64, kernels: KernelStarts, position: Int64 | None = None, awaited_ns: Int64 | None = None
) -> Cuts:
    """Return cuts that take no time, int64 [k] each.

    what: index into `CUTS`. begin_ns: on the rank's wall clock. position: how many kernels were launched before each;
    None: by time. awaited_ns: the end of the communication that has to be over; None: of none.
    """
    none = np.full(len(begin_ns), ABSENT, dtype=np.int64)
    return Cuts(
        what=np.full(len(begin_ns), what, dtype=np.int64),
        position=np.searchsorted(kernels.launch_ns, begin_ns, side="left") if position is None else position,
        begin_ns=begin_ns.astype(np.int64),
        until_ns=begin_ns.astype(np.int64),
        awaited_kernel_ns=none,
        awaited_communication_ns=none if awaited_ns is None else awaited_ns,
        communication_end_ns=none,
        needs_kernels=none,
    )
