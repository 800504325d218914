"""The slices of a trace as they are written, for tools that have tables of their own.

Analyses read an `EventTable`. It has another clock, leaves out rows that cannot be right, and hashes shapes. Making it
takes longer than reading a small file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tracekit.model.events import DecodedTrace, Int32, Int64, Track

__all__ = ["WrittenEvents", "from_decoded"]


@dataclass(frozen=True, kw_only=True, eq=False)
class WrittenEvents:
    """n slices of one trace file, in the order of the file. Columns of ids have `ABSENT` where none is written.

    Attributes:
        texts: names and categories; two may be equal.
        tracks: what `track` refers to.
        position: of the event among all events of the file, int32 [n]; `ABSENT` for a B/E pair.
        name: index into `texts`, int32 [n].
        category: index into `texts`, int32 [n]. A category that is not written is "".
        track: index into `tracks`, int32 [n].
        start_ns: `ts` in nanoseconds, int64 [n], without the file's base time.
        duration_ns: int64 [n].
        correlation: int64 [n].
        external_id: int64 [n].
        sequence_number: int64 [n].
        forward_thread: int64 [n].
        arguments: index into `argument_texts`, int32 [n], or `ABSENT`.
        argument_texts: JSON objects of arguments, without those in `read.decode.extra_args.EXCLUDED_ARGS`.
        keys: the JSON text of each top-level key besides the events.
        has_other_phases: whether the file has events that are no slices.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = (
        *("position", "name", "category", "track", "start_ns", "duration_ns"),
        *("correlation", "external_id", "sequence_number", "forward_thread", "extra_args"),
    )

    texts: Sequence[str]
    tracks: Sequence[Track]
    position: Int32
    name: Int32
    category: Int32
    track: Int32
    start_ns: Int64
    duration_ns: Int64
    correlation: Int64
    external_id: Int64
    sequence_number: Int64
    forward_thread: Int64
    arguments: Int32
    argument_texts: Sequence[bytes]
    keys: Mapping[str, bytes]
    has_other_phases: bool

    def __len__(self) -> int:
        return len(self.position)

    def rows(self, rows: Int64) -> WrittenEvents:
        """Return the events in these rows, int64 [k]."""
        columns = ("arguments" if name == "extra_args" else name for name in self.COLUMNS)
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})


def from_decoded(decoded: DecodedTrace) -> WrittenEvents:
    """Return the slices of a trace that was decoded with extra arguments, without those out of range."""
    events = decoded.events
    return WrittenEvents(
        texts=events.strings,
        tracks=events.tracks,
        position=events.position,
        name=events.name,
        category=events.category,
        track=events.track,
        start_ns=events.start_ns - decoded.header.base_time_ns,
        duration_ns=events.duration_ns,
        correlation=events.correlation,
        external_id=events.external_id,
        sequence_number=events.sequence_number,
        forward_thread=events.forward_thread,
        arguments=events.extra_args,
        argument_texts=[text.encode() for text in events.strings],
        keys=decoded.keys,
        has_other_phases=bool(events.other_phases) or len(events.memory) > 0,
    )
