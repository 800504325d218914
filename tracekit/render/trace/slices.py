"""What is on the page of a merged trace, in the terms that every format knows: tracks, slices with arguments, arrows.

The pages (`rank_page`, `run_page`) make these, a format's writer (`TraceWriter`) puts them down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tracekit.model.events import ABSENT, Bool, Int32, Int64

__all__ = ["ROLES", "Argument", "Float64", "Flows", "Rows", "Sink", "Slices", "TraceFormat", "TraceWriter", "Unsigned"]

ROLES = ("begins", "passes", "ends")

Track = TypeVar("Track")

Float64 = npt.NDArray[np.float64]
Unsigned = npt.NDArray[np.uint64]
Rows = Int32 | Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class Argument:
    """One argument of m rows: `values`, int64 [m], or int32 [m], indexes into the slices' `strings`, when `is_text`, of
    which `ABSENT` is none. `present`: bool [m], None: all have it.
    """

    name: str
    values: Int64 | Int32
    present: Bool | None = None
    is_text: bool = False

    def known(self, rows: Rows) -> Bool | None:
        """bool [n], which of the rows in `rows` have it; None: all."""
        has = None if self.present is None else self.present[rows]
        if self.is_text:
            said: Bool = self.values[rows] != ABSENT
            has = said if has is None else has & said
        return has


@dataclass(frozen=True, kw_only=True, eq=False)
class Flows:
    """Arrows: slices that carry the same id are joined in the order in which they start. ids: uint64 [m], unique in the
    trace, 0: none. role: uint8 [m], whether the arrow begins in a slice, goes through it or ends, by place in `ROLES`.
    """

    ids: Unsigned
    role: npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, eq=False)
class Slices:
    """n slices of one track, in any order. start_ns (Unix epoch), duration_ns: int64 [n], >= 0. What they say may stand
    in a table of more rows: name, category: int32 [m], indexes into `strings` or `ABSENT`, `arguments` and `flows` of m
    rows; `details`: int32 [m], the same, further arguments as `read.decode.extra_args` writes them, of which few are
    distinct; None: no slice has any. `rows`: int32 [n], the row of each slice; None: m is n.

    Raises ValueError: columns of different lengths, a negative time, or an end beyond int64.
    """

    start_ns: Int64
    duration_ns: Int64
    name: Int32
    category: Int32
    strings: Sequence[str]
    arguments: tuple[Argument, ...] = ()
    flows: tuple[Flows, ...] = ()
    details: Int32 | None = None
    rows: Int32 | None = None

    def __post_init__(self) -> None:
        times: list[npt.NDArray[Any]] = [self.start_ns, self.duration_ns, *([] if self.rows is None else [self.rows])]
        said: list[npt.NDArray[Any]] = [self.name, self.category, *([] if self.details is None else [self.details])]
        said += [argument.values for argument in self.arguments]
        said += [column for flows in self.flows for column in (flows.ids, flows.role)]
        groups = [times, said] if self.rows is not None else [times + said]
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
        """The rows in which it stands what some slices say, by their places among the n."""
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
        """Slices of one category from their names, n strings; `texts`: further arguments, n strings each, "" where a
        slice has none."""
        strings = list(dict.fromkeys([category, *names, *(text for column in texts.values() for text in column)]))
        place = {text: index for index, text in enumerate(strings)} | {"": ABSENT}
        of_texts = [Argument(name=name, values=_places(place, column), is_text=True) for name, column in texts.items()]
        return Slices(
            start_ns=start_ns,
            duration_ns=end_ns - start_ns,
            name=_places(place, names),
            category=np.full(len(names), place[category], dtype=np.int32),
            strings=strings,
            arguments=(*arguments, *of_texts),
            flows=tuple(flows),
        )


class TraceWriter(Protocol[Track]):
    """Writes one rank's part of a merged trace. A `Track` is a row of the page, to write on or to put others under."""

    def add_process(self, name: str, *, pid: int, order: int = 0) -> Track:
        """A process: tracks go under it. pid: unique in the trace, >= 1."""

    def add_track(self, name: str, *, parent: Track, order: int = 0) -> Track:
        """A track of its own under a process or a track. Equal names are not merged."""

    def add_counter(self, name: str, *, unit: str = "", parent: Track, order: int = 0) -> Track:
        """A track of numbers over time."""

    def write_slices(self, track: Track, slices: Slices) -> int:
        """Write all slices of a track; those that cross others go to further lanes, whose number is returned."""

    def write_counter(self, track: Track, time_ns: Int64, values: Float64) -> None:
        """Write the values of a counter, [n], each from its time on."""


class Sink(Protocol):
    """What a page is written to."""

    def write(self, content: bytes | memoryview, /) -> object: ...


class TraceFormat(Protocol):
    """A format that pages are written in, in whichever process; `head` comes before them, `tail` behind them, and
    `separator` between those that are not empty. Picklable."""

    @property
    def head(self) -> bytes: ...

    @property
    def separator(self) -> bytes: ...

    @property
    def tail(self) -> bytes: ...

    def writer(self, stream: Sink, place: int) -> TraceWriter[Any]:
        """Of the page of the rank at this place."""


def _places(place: Mapping[str, int], texts: Sequence[str]) -> Int32:
    """int32 [n]: the place of each of the texts."""
    return np.fromiter(map(place.__getitem__, texts), dtype=np.int32, count=len(texts))
