"""The seam between what is on the page of a merged trace and the format that it is written in.

Comes in: columns of slices, counters and arrows. Goes out: nothing; a `TraceWriter` puts them into its format. Times
are nanoseconds since the Unix epoch, on the run's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tracekit.model.events import Bool, Int32, Int64

__all__ = ["Argument", "Float64", "Flows", "Slices", "TraceWriter", "Unsigned"]

Float64 = npt.NDArray[np.float64]
Unsigned = npt.NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of n slices. values: int64 [n] or float64 [n], or when `is_text` int32 [n], indexes into the
    strings of the slices. present: bool [n], None: every slice has it.
    """

    name: str
    values: Int64 | Float64 | Int32
    present: Bool | None = None
    is_text: bool = False


@dataclass(frozen=True, kw_only=True)
class Flows:
    """Arrows between slices. ids: uint64 [n], 0: none; slices of the trace with the same id are joined in order of
    time. ends: the arrow ends here, else it begins here, or goes on. One that begins and ends on a rank is on no other.
    """

    ids: Unsigned
    ends: bool


@dataclass(frozen=True, kw_only=True)
class Slices:
    """n slices of one track, in any order. start_ns, duration_ns: int64 [n]; name, category: int32 [n], indexes into
    `strings` or `ABSENT`.
    """

    start_ns: Int64
    duration_ns: Int64
    name: Int32
    category: Int32
    strings: list[str]
    arguments: tuple[Argument, ...] = ()
    flows: tuple[Flows, ...] = ()


T = TypeVar("T")


class TraceWriter(Protocol[T]):
    """Writes one rank's tracks and what is on them; `T` is how the format refers to a track."""

    def add_process(self, name: str, *, pid: int, order: int) -> T:
        """A process. pid: unique in the trace, at least 1."""

    def add_thread(self, process: T, name: str, *, tid: int) -> T:
        """A thread of the host. tid: unique in the trace."""

    def add_track(self, name: str, *, parent: T, order: int) -> T:
        """A track under a process or another track."""

    def add_counter(self, name: str, *, unit: str, parent: T, order: int) -> T:
        """A counter under a process or a track."""

    def write_slices(self, track: T, slices: Slices) -> int:
        """All slices of a track, overlapping or not; returns the number of lanes that they needed."""

    def write_counter(self, track: T, time_ns: Int64, values: Float64) -> None:
        """Values of a counter, int64 [n] and float64 [n], each valid until the next."""
