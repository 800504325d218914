"""The clock of each rank: how it maps to the run's, and how far off that may be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tracekit.model.events import Int64
from tracekit.model.summary import RankSummary

Method = Literal["probe", "host", "wall", "collectives", "messages", "none"]

__all__ = ["ClockModel", "Method", "clocks_are_comparable", "largest_pair_error_ns"]


@dataclass(frozen=True, kw_only=True)
class ClockModel:
    """A rank's clock against the reference's: `t_run = t_rank - offset_ns - drift * (t_rank - at_ns)`.

    Attributes:
        method: the probe measured it; it is the clock of the reference's host; wall clocks agree within what
            collectives and messages show; it was fitted to the ends of collectives; messages bound it; it is not known.
        error_ns: half-width of the uncertainty, anywhere in the recording; None when it is not known. A difference
            between two ranks is uncertain by the sum of both.
        jump_ns: by how much it jumps ahead within the recording, or back; None if it does not. Times of such a rank are
            not compared.
    """

    rank: int
    method: Method
    offset_ns: int = 0
    at_ns: int = 0
    drift_ppm: float | None = None
    error_ns: int | None = None
    jump_ns: int | None = None

    def to_run(self, time_ns: Int64) -> Int64:
        """Return times of the rank, int64 [n], on the run's clock."""
        shifted = time_ns - self.offset_ns
        if not self.drift_ppm:
            return shifted
        drifted: Int64 = np.rint((time_ns - self.at_ns) * (self.drift_ppm * 1e-6)).astype(np.int64)
        return shifted - drifted

    def moment_to_run(self, time_ns: int) -> int:
        """Return `to_run` of one point of time, without arrays."""
        return time_ns - self.offset_ns - round((time_ns - self.at_ns) * ((self.drift_ppm or 0.0) * 1e-6))

    def intervals_to_run(self, start_ns: Int64, end_ns: Int64) -> tuple[Int64, Int64]:
        """Return both ends of n intervals on the run's clock, int64 [n] each."""
        return self.to_run(start_ns), self.to_run(end_ns)


def clocks_are_comparable(ranks: Sequence[RankSummary], clocks: Sequence[ClockModel]) -> bool:
    """Return whether times of different ranks can be compared: the clocks of all of them are known.

    A rank whose device records are lost does not count: it has no times.
    """
    unmeasured = {summary.rank for summary in ranks if summary.unmeasured is not None}
    counting = [clock for clock in clocks if clock.rank not in unmeasured]
    return len(counting) == 1 or all(clock.method != "none" for clock in counting)


def largest_pair_error_ns(clocks: Iterable[ClockModel]) -> int:
    """Return by how much times of two ranks with these clocks may be off each other, in ns."""
    return sum(sorted(clock.error_ns or 0 for clock in clocks)[-2:])
