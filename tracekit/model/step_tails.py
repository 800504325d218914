"""What a rank did at the end of each step, after it was last released from communication that it waited for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.events import Int64

__all__ = ["StepTails", "no_tails"]


@dataclass(frozen=True, kw_only=True, eq=False)
class StepTails(Columnar):
    """In order of time, int64 [n] each: from `since_ns`, the release, to `until_ns`, the step's end, and of that
    `compute_ns` computing and `data_ns` loading data."""

    since_ns: Int64
    until_ns: Int64
    compute_ns: Int64
    data_ns: Int64


def no_tails() -> StepTails:
    none = np.empty(0, dtype=np.int64)
    return StepTails(since_ns=none, until_ns=none, compute_ns=none, data_ns=none)
