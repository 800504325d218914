"""When a rank computed nothing because communication that it needed had not ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.events import Int64

__all__ = ["Waits", "no_waits"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Waits(Columnar):
    """n disjoint waits in order of time: since_ns, until_ns: int64 [n], on the rank's wall clock. Each ends when a
    collective, send or receive ends.
    """

    since_ns: Int64
    until_ns: Int64


def no_waits() -> Waits:
    empty = np.empty(0, dtype=np.int64)
    return Waits(since_ns=empty, until_ns=empty)
