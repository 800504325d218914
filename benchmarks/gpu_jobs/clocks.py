"""Clocks of machines that are offset, drift and jump."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """What the clock of each machine shows. Machines that are not named have the right time.

    Attributes:
        offset_us: by machine, how far its clock is ahead when the job starts.
        drift_ppm: by machine, how much faster than true time it runs.
        jump_us: by machine, a change at `jump_at`, once.
        jump_at: the share of the job's duration at which clocks jump.
    """

    offset_us: tuple[float, ...] = ()
    drift_ppm: tuple[float, ...] = ()
    jump_us: tuple[float, ...] = ()
    jump_at: float = 0.5

    def error_ns(self, host: int, true_ns: int, duration_ns: int) -> float:
        """Return how far the clock of a machine is ahead at a true time after the start of a job."""
        jumped = true_ns >= self.jump_at * duration_ns
        drifted_ns = true_ns * _of(self.drift_ppm, host) * 1e-6
        return 1e3 * _of(self.offset_us, host) + drifted_ns + 1e3 * _of(self.jump_us, host) * jumped


def _of(values: tuple[float, ...], host: int) -> float:
    return values[host] if host < len(values) else 0.0
