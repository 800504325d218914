"""What a page of a merged trace consists of, whatever the format: tracks, slices with arguments, arrows.

A page is the part of a merged trace that shows one rank, or the run as a whole. `rank_page` and `run_page` make the
slices, and the `TraceWriter` of a format writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tracekit.model.events import ABSENT, Bool, Float64, Int32, Int64

__all__ = [
    "ROLES",
    "RUN_PAGE",
    "Argument",
    "Flows",
    "Rows",
    "Sink",
    "Slices",
    "TraceFormat",
    "TraceWriter",
    "Unsigned",
]

RUN_PAGE = "run"
"""Name of the page of the run as a whole."""

ROLES = ("begins", "passes", "ends")
"""What an arrow does in a slice."""

Track = TypeVar("Track")

Unsigned = npt.NDArray[np.uint64]
Rows = Int32 | Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class Argument:
    """One argument of m rows.

    Attributes:
        name: Name of the argument.
        values: Numbers, int64 [m]; if `is_text`, indexes into the slices' `strings`, or `ABSENT`, int32 [m].
        present: Rows that have the argument, bool [m]; None: all.
        is_text: Whether the values are texts.
    """

    name: str
    values: Int64 | Int32
    present: Bool | None = None
    is_text: bool = False

    def known(self, rows: Rows) -> Bool | None:
        """Return which of the rows in `rows`, integers [n], have the argument, bool [n]; None: all."""
        has = None if self.present is None else self.present[rows]
        if self.is_text:
            has_text: Bool = self.values[rows] != ABSENT
            has = has_text if has is None else has & has_text
        return has


@dataclass(frozen=True, kw_only=True, eq=False)
class Flows:
    """Arrows, at most one of them in each of m rows. An arrow joins slices of the same id in order of their starts.

    Attributes:
        ids: Ids of arrows, unique in the trace, uint64 [m]; 0: no arrow.
        role: Whether the arrow begins in a slice, passes it or ends in it, index into `ROLES`, uint8 [m].
    """

    ids: Unsigned
    role: npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, eq=False)
class Slices:
    """n slices of one track, in any order.

    Times are columns of n slices. All else may be columns of a table of m rows, such as the events of a recording, of
    which `rows` selects those of the track.

    Attributes:
        start_ns: Start since the Unix epoch, int64 [n], >= 0.
        duration_ns: Duration, int64 [n], >= 0.
        name: Index into `strings`, or `ABSENT`, int32 [m].
        category: Index into `strings`, or `ABSENT`, int32 [m].
        strings: All texts.
        arguments: Columns of arguments, of m rows.
        flows: Columns of arrows, of m rows.
        extra_args: Further arguments, as JSON objects (`read.decode.extra_args`): index into `strings`, or `ABSENT`,
            int32 [m]. Few of them are distinct. None: no slice has any.
        rows: Row of each slice, int32 [n]; None: m is n.

    Raises ValueError for columns of different lengths, for a negative time, and for an end beyond int64.
    """

    start_ns: Int64
    duration_ns: Int64
    name: Int32
    category: Int32
    strings: Sequence[str]
    arguments: tuple[Argument, ...] = ()
    flows: tuple[Flows, ...] = ()
    extra_args: Int32 | None = None
    rows: Int32 | None = None

    def __post_init__(self) -> None:
        times: list[npt.NDArray[Any]] = [self.start_ns, self.duration_ns, *([] if self.rows is None else [self.rows])]
        table: list[npt.NDArray[Any]] = [self.name, self.category]
        table += [] if self.extra_args is None else [self.extra_args]
        table += [argument.values for argument in self.arguments]
        table += [column for flows in self.flows for column in (flows.ids, flows.role)]
        groups = [times, table] if self.rows is not None else [times + table]
        groups += [[each.present, each.values] for each in self.arguments if each.present is not None]
        for columns in groups:
            lengths = {len(column) for column in columns}
            if len(lengths) != 1:
                raise ValueError(f"columns of slices have different lengths: {sorted(lengths)}")
        if min(self.start_ns.min(initial=0), self.duration_ns.min(initial=0)) < 0:
            raise ValueError("a slice has a negative start or duration")
        if np.any(self.duration_ns > np.iinfo(np.int64).max - self.start_ns):
            raise ValueError("a slice ends beyond the range of int64 nanoseconds")

    def rows_of(self, slices: Rows) -> Rows:
        """Return the rows of some slices, given by their indexes."""
        return slices if self.rows is None else self.rows[slices]

    def __len__(self) -> int:
        return len(self.start_ns)

    @staticmethod
    def named(
        names: Sequence[str],
        start_ns: Int64,
        end_ns: Int64,
        *,
        category: str,
        arguments: Sequence[Argument] = (),
        texts: Mapping[str, Sequence[str]] = MappingProxyType({}),
        flows: Sequence[Flows] = (),
    ) -> Slices:
        """Return n slices of one category from their names.

        texts: further arguments by name, n strings each; "" where a slice has none.
        """
        strings = list(dict.fromkeys([category, *names, *(text for column in texts.values() for text in column)]))
        place = {text: index for index, text in enumerate(strings)} | {"": ABSENT}
        text_arguments = [
            Argument(name=name, values=_places(place, column), is_text=True) for name, column in texts.items()
        ]
        return Slices(
            start_ns=start_ns,
            duration_ns=end_ns - start_ns,
            name=_places(place, names),
            category=np.full(len(names), place[category], dtype=np.int32),
            strings=strings,
            arguments=(*arguments, *text_arguments),
            flows=tuple(flows),
        )


class TraceWriter(Protocol[Track]):
    """Writes one page of a merged trace. A `Track` is a row of the page: slices or values are written on it, or other
    tracks put under it.

    Attributes:
        left_out: Slices so far that crossed others in as many lanes as the limit allows.
    """

    left_out: int

    def add_run_page(self) -> Track:
        """Return the page of the run, named `RUN_PAGE`, under which tracks go."""

    def add_rank_page(self, name: str, *, order: int = 0) -> Track:
        """Add the page of a rank, under which tracks go. Pages of ranks are shown by `order`, after that of the run."""

    def add_track(self, name: str, *, parent: Track, order: int = 0) -> Track:
        """Add a track under a page or a track. Tracks of equal names are not merged."""

    def add_counter(self, name: str, *, unit: str = "", parent: Track, order: int = 0) -> Track:
        """Add a track of numbers over time."""

    def write_slices(self, track: Track, slices: Slices) -> int:
        """Write slices on a track; those that cross others go to further lanes. Return the number of lanes."""

    def write_counter(self, track: Track, time_ns: Int64, values: Float64) -> None:
        """Write the values of a counter, [n], each of which holds from its time on."""


class Sink(Protocol):
    """A binary stream that a page is written to."""

    def write(self, content: bytes | memoryview, /) -> object: ...


class TraceFormat(Protocol):
    """A format of merged traces. Picklable, as different processes may write the pages."""

    @classmethod
    def begin(cls, first_ns: int, describe: Callable[[int], Mapping[str, str]]) -> TraceFormat:
        """Return the format of a trace whose input begins at `first_ns`, since the Unix epoch.

        describe: returns texts about the trace as a whole, by name, for the time from which its own times count.
        """

    @property
    def base_ns(self) -> int:
        """The time since the Unix epoch from which times in the trace count."""

    @property
    def head(self) -> bytes:
        """Bytes before all pages."""

    @property
    def separator(self) -> bytes:
        """Bytes between pages that are not empty."""

    @property
    def tail(self) -> bytes:
        """Bytes after all pages."""

    def writer(self, stream: Sink, place: int) -> TraceWriter[Any]:
        """Return a writer for the page of the rank with this index in the run's ranks, or of the run, as if the run
        were a rank after the last."""


def _places(place: Mapping[str, int], texts: Sequence[str]) -> Int32:
    """Return the place of each text, int32 [n]."""
    return np.fromiter(map(place.__getitem__, texts), dtype=np.int32, count=len(texts))
