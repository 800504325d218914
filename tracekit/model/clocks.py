"""The clock of each rank: how it maps to the run's, and how far off that may be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tracekit.model.events import Int64
from tracekit.model.summary import RankSummary

Method = Literal["probe", "collectives", "messages", "none"]

__all__ = ["ClockJump", "ClockModel", "Method", "clocks_are_comparable", "largest_pair_error_ns"]


@dataclass(frozen=True, kw_only=True)
class ClockJump:
    """A jump of a rank's clock: from `from_ns` on, the offset at `at_ns` is `offset_ns`. Times are on the rank's
    clock.

    Attributes:
        between_ns: the last moment that is known to be before the jump, and the first one behind it. A clock that is
            set back may show the second one as earlier. None if nothing is known but `from_ns`.
        at_least: the jump may be larger: only by how much at least is known.
        unproven: another clock seems to jump then. It may be this one, the other way: nothing shows that it is steady.
    """

    from_ns: int
    offset_ns: int
    at_ns: int
    between_ns: tuple[int, int] | None = None
    at_least: bool = False
    unproven: bool = False

    @property
    def bounds_ns(self) -> tuple[int, int]:
        """Return `between_ns`, or `from_ns` twice."""
        return self.between_ns or (self.from_ns, self.from_ns)


@dataclass(frozen=True, kw_only=True)
class ClockModel:
    """A rank's clock against the reference's: `t_run = t_rank - offset_ns - drift * (t_rank - at_ns)`.

    Attributes:
        method: the probe measured it, it was fitted to the ends of collectives, messages bound it, or it is not known.
        error_ns: half-width of the uncertainty, anywhere in the recording; None when it is not known. A difference
            between two ranks is uncertain by the sum of both.
        jumps: in order of time; after each of them other offsets hold.
    """

    rank: int
    method: Method
    offset_ns: int = 0
    at_ns: int = 0
    drift_ppm: float | None = None
    error_ns: int | None = None
    jumps: tuple[ClockJump, ...] = ()

    def to_run(self, time_ns: Int64) -> Int64:
        """Return times of the rank, int64 [n], on the run's clock."""
        if not self.jumps:
            shifted = time_ns - self.offset_ns
            return np.asarray(shifted - self._drifted_ns(time_ns - self.at_ns) if self.drift_ppm else shifted)
        offset_ns, at_ns = np.full(len(time_ns), self.offset_ns), np.full(len(time_ns), self.at_ns)
        for jump in self.jumps:
            after = time_ns >= jump.from_ns
            offset_ns[after], at_ns[after] = jump.offset_ns, jump.at_ns
        shifted = time_ns - offset_ns
        return np.asarray(shifted - self._drifted_ns(time_ns - at_ns) if self.drift_ppm else shifted)

    def moment_to_run(self, time_ns: int) -> int:
        """Return `to_run` of one point of time, without arrays."""
        offset_ns, at_ns = self.offset_ns, self.at_ns
        for jump in self.jumps:
            if time_ns >= jump.from_ns:
                offset_ns, at_ns = jump.offset_ns, jump.at_ns
        return time_ns - offset_ns - round((time_ns - at_ns) * ((self.drift_ppm or 0.0) * 1e-6))

    def intervals_to_run(self, start_ns: Int64, end_ns: Int64) -> tuple[Int64, Int64]:
        """Return both ends of n intervals on the run's clock, int64 [n] each.

        An interval ends where it starts if the clock was set back in it by more than it took.
        """
        start_ns, end_ns = self.to_run(start_ns), self.to_run(end_ns)
        return start_ns, np.maximum(start_ns, end_ns)

    def _drifted_ns(self, elapsed_ns: Int64) -> Int64:
        drifted: Int64 = np.rint(elapsed_ns * ((self.drift_ppm or 0.0) * 1e-6)).astype(np.int64)
        return drifted


def clocks_are_comparable(ranks: Sequence[RankSummary], clocks: Sequence[ClockModel]) -> bool:
    """Return whether times of different ranks can be compared: all clocks are known, or there is one machine.

    A rank whose device records are lost does not count: it has no times.
    """
    unmeasured = {summary.rank for summary in ranks if summary.unmeasured is not None}
    machines = {summary.machine for summary in ranks if summary.rank not in unmeasured}
    known = all(clock.method != "none" for clock in clocks if clock.rank not in unmeasured)
    return known or (len(machines) == 1 and None not in machines)


def largest_pair_error_ns(clocks: Iterable[ClockModel]) -> int:
    """Return by how much times of two ranks with these clocks may be off each other, in ns."""
    return sum(sorted(clock.error_ns or 0 for clock in clocks)[-2:])
