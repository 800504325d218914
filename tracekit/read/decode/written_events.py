"""The slices of a trace as they are written, for tools that have tables of their own.

Analyses read an `EventTable` instead. It has another clock, leaves out rows that cannot be right, and hashes shapes.
Making it takes longer than reading a small file.

`RawEvent` and `RawArguments` are an event as msgspec decodes it: the fields and arguments that are kept, and nothing
else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import msgspec

from tracekit.model.events import DecodedTrace, Int32, Int64, Track
from tracekit.read.decode.field_values import Scalar, is_inexact
from tracekit.read.decode.table import SYNCHRONISATION

_NO_TEXT = msgspec.Raw(b"")

# Larger ones become text: Python's hash of integers of any size lets a file choose as many equal ones as it likes.
_TrackId = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | float | str | None


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
        has_other_phases=bool(events.other_phases) or len(events.memory) > 0 or len(events.counters) > 0,
    )


class RawArguments(msgspec.Struct, gc=False):
    """The arguments that are kept. msgspec skips all others without building them."""

    external_id: Scalar = msgspec.field(name="External id", default=None)
    correlation: Scalar = None
    sequence_number: Scalar = msgspec.field(name="Sequence number", default=None)
    forward_thread: Scalar = msgspec.field(name="Fwd thread id", default=None)
    collective: Scalar = msgspec.field(name="Collective name", default=None)
    dtype: Scalar = None
    in_elements: Scalar = msgspec.field(name="In msg nelems", default=None)
    out_elements: Scalar = msgspec.field(name="Out msg nelems", default=None)
    group_size: Scalar = msgspec.field(name="Group size", default=None)
    group_name: Scalar = msgspec.field(name="Process Group Name", default=None)
    group_description: Scalar = msgspec.field(name="Process Group Description", default=None)
    group_ranks: Scalar = msgspec.field(name="Process Group Ranks", default=None)
    sequence: Scalar = msgspec.field(name="Seq", default=None)
    source_rank: Scalar = msgspec.field(name="Src Rank", default=None)
    destination_rank: Scalar = msgspec.field(name="Dst Rank", default=None)
    input_shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=_NO_TEXT)
    input_types: msgspec.Raw = msgspec.field(name="Input type", default=_NO_TEXT)
    concrete_inputs: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_NO_TEXT)
    grid: msgspec.Raw = _NO_TEXT
    device_type: msgspec.Raw = msgspec.field(name="Device Type", default=_NO_TEXT)
    device_id: msgspec.Raw = msgspec.field(name="Device Id", default=_NO_TEXT)
    change_bytes: msgspec.Raw = msgspec.field(name="Bytes", default=_NO_TEXT)
    allocated_bytes: msgspec.Raw = msgspec.field(name="Total Allocated", default=_NO_TEXT)
    reserved_bytes: msgspec.Raw = msgspec.field(name="Total Reserved", default=_NO_TEXT)
    label: Scalar = msgspec.field(name="name", default=None)


class RawEvent(msgspec.Struct, gc=False):
    """One event. `written_args`: the text of its arguments, where `RawText.restore` has put it."""

    ph: str | None = None
    name: str | None = None
    cat: str | None = None
    ts: Scalar = None
    dur: Scalar = None
    pid: _TrackId = None
    tid: _TrackId = None
    args: RawArguments | None = None
    written_args: msgspec.Raw = msgspec.Raw(b"null")  # overwritten whatever a file has under this name

    @property
    def is_kept_as_written(self) -> bool:
        """Return whether its text is needed: a time loses digits, or arguments of any name count."""
        return self.ph == "C" or self.cat == SYNCHRONISATION or is_inexact(self.ts) or is_inexact(self.dur)


class RawText(msgspec.Struct, gc=False):
    """Start, duration and arguments of an event as they are written.

    Some numbers lose digits in a float64, and `RawArguments` has only some of the arguments.
    """

    ts: msgspec.Raw = msgspec.Raw(b"null")
    dur: msgspec.Raw = msgspec.Raw(b"null")
    args: msgspec.Raw = msgspec.Raw(b"null")

    def restore(self, event: RawEvent) -> None:
        """Give `event` the text of its arguments, and that of its times which lost digits."""
        event.written_args = msgspec.Raw(bytes(self.args))  # a copy: it is a view of the whole text
        if is_inexact(event.ts):
            event.ts = bytes(self.ts).decode("ascii")
        if is_inexact(event.dur):
            event.dur = bytes(self.dur).decode("ascii")
