"""Write one rank's tracks and slices in Perfetto's native trace format.

A trace is the format's `head` and then what one `RankTraceWriter` a rank has written, in any order. Different
processes can write the ranks. Names and tracks are written as the `perfetto` package's messages. Slices are encoded by
`compiled_packets`, or by `portable_packets` if the extension was not built.

Size. A trace of a million slices has two million packets, so each byte of a packet counts. Names, categories, argument
names and argument texts are interned. A track is named once for all slices that follow on it. A slice's end carries its
time alone. Extra arguments are encoded once for all slices that share them.

Time. Timestamps are nanoseconds since the Unix epoch on the run's clock. They are written in the trace's default clock
(BOOTTIME), for which the trace processor converts nothing, so `slice.ts` in SQL is the number that was passed in. The
head says that this clock equals REALTIME, so that the UI can show date and time.

Order. The trace processor sorts packets by time, keeps the order of the file at equal times, and nests slices as a
stack. So slices are opened and closed in the order of `slices.boundary_order`. Order between tracks does not matter.

Display. Pages are tracks under one track for the run, and no processes. Perfetto's UI shows tracks under another track
by `order`, in all versions since v49. It would show processes by the number of their slices before v57, tracks right
under a process by name, threads above all tracks of their process, and a process's id behind its name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from tracekit.model.events import Float64, Int64
from tracekit.model.metadata import MERGED_KEY
from tracekit.native_choice import use_native
from tracekit.render.perfetto import portable_packets
from tracekit.render.perfetto.extra_args import Encoder, ExtraArgsEncoder
from tracekit.render.perfetto.fields import Interned, encodable, fields_of
from tracekit.render.perfetto.messages import (
    BUILTIN_CLOCK_BOOTTIME,
    BUILTIN_CLOCK_REALTIME,
    EXPLICIT,
    SEQ_INCREMENTAL_STATE_CLEARED,
    SEQ_NEEDS_INCREMENTAL_STATE,
    SIBLING_MERGE_BEHAVIOR_NONE,
    TYPE_COUNTER,
    Trace,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)
from tracekit.render.slices import RUN_PAGE, FreeTrackRows, Sink, Slices
from tracekit.version import __version__

# The UI shows it as the help of the run's page. Its key tells a merged trace from others.
_DESCRIPTION = f"All ranks of a run on one clock, from tracekit {__version__} ({MERGED_KEY})"
_FIRST_SEQUENCE = 2  # 0 means "none", and 1 is the tracing service's own
_TRACKS_PER_RANK = 1 << 20
_RUN_UUID = 1  # less than the ids of the tracks of any rank
_FIRST_RANK = 1 << 20  # the tracks of the run itself come before the pages of ranks


@dataclass(frozen=True, kw_only=True)
class PerfettoFormat:
    """Perfetto's native format, as `TraceFormat` describes formats.

    Attributes:
        start_ns: A time in the trace, since the Unix epoch.
        attributes: Texts about the trace as a whole, by name. The UI lists them in its overview.
    """

    start_ns: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    base_ns = 0
    separator = b""
    tail = b""

    @classmethod
    def begin(cls, first_ns: int, describe: Callable[[int], Mapping[str, str]]) -> PerfettoFormat:
        return cls(start_ns=first_ns, attributes=describe(0))

    @property
    def head(self) -> bytes:
        """Packets that concern the whole trace, to be written once, before the ranks."""
        clock = TracePacket(trusted_packet_sequence_id=_FIRST_SEQUENCE - 1)
        for clock_id in (BUILTIN_CLOCK_BOOTTIME, BUILTIN_CLOCK_REALTIME):
            clock.clock_snapshot.clocks.add(clock_id=clock_id, timestamp=self.start_ns)
        run = TracePacket(trusted_packet_sequence_id=_FIRST_SEQUENCE - 1)
        run.track_descriptor.CopyFrom(_descriptor(RUN_PAGE))
        run.track_descriptor.uuid = _RUN_UUID
        run.track_descriptor.description = _DESCRIPTION
        about = TracePacket(trusted_packet_sequence_id=_FIRST_SEQUENCE - 1)
        for key, value in self.attributes.items():
            about.trace_attributes.attribute.add(key=key, string_value=value)
        head: bytes = Trace(packet=[clock, run, about]).SerializeToString()
        return head

    def writer(self, stream: Sink, rank_index: int) -> RankTraceWriter:
        return RankTraceWriter(stream, rank_index)


@dataclass(frozen=True, kw_only=True)
class PerfettoTrack:
    """A row of the trace: slices or values are written on it, or other tracks put under it."""

    uuid: int
    name: str


class RankTraceWriter:
    """Writes one rank's tracks and slices to a binary stream.

    Each rank has its own packet sequence, so its own interned names, and its own range of track ids. Both follow from
    `rank`, an integer >= 0. Memory grows with the number of distinct names alone.

        with open("rank3.pftrace", "wb") as stream:
            trace = PerfettoFormat(start_ns=int(events.start_ns.min()))
            stream.write(trace.head)
            writer = trace.writer(stream, 3)
            page = writer.add_rank_page("rank 3 · host", order=3)
            main = writer.add_track("main", parent=page)
            writer.write_slices(main, slices)
    """

    def __init__(self, stream: Sink, rank: int) -> None:
        self.left_out = 0
        self._stream = stream
        self._sequence = _FIRST_SEQUENCE + rank
        self._next_uuid = (rank + 1) * _TRACKS_PER_RANK
        self._interned = Interned()
        self._extra_args = ExtraArgsEncoder(self._interned)
        self._free_track_rows: dict[int, FreeTrackRows] = {}
        self._track_rows: dict[int, list[PerfettoTrack]] = {}
        opening = self._packet()
        opening.first_packet_on_sequence = True
        opening.sequence_flags = SEQ_INCREMENTAL_STATE_CLEARED
        self._write(opening)

    def add_run_page(self) -> PerfettoTrack:
        """Return the run's track, which the format's head describes."""
        return PerfettoTrack(uuid=_RUN_UUID, name=RUN_PAGE)

    def add_rank_page(self, name: str, *, order: int = 0) -> PerfettoTrack:
        """Add a track under the run's, after the run's own tracks."""
        return self.add_track(name, parent=self.add_run_page(), order=_FIRST_RANK + order)

    def add_track(self, name: str, *, parent: PerfettoTrack | None = None, order: int = 0) -> PerfettoTrack:
        """Add a track under a track, or at the top. Tracks of equal names are not merged."""
        descriptor = _descriptor(name, order)
        if parent is not None:
            descriptor.parent_uuid = parent.uuid
        return self._describe(name, descriptor)

    def add_counter(
        self, name: str, *, unit: str = "", parent: PerfettoTrack | None = None, order: int = 0
    ) -> PerfettoTrack:
        """Add a track of numbers over time."""
        descriptor = TrackDescriptor(name=encodable(name), sibling_order_rank=order)
        descriptor.counter.unit_name = unit
        if parent is not None:
            descriptor.parent_uuid = parent.uuid
        return self._describe(name, descriptor)

    def write_slices(self, track: PerfettoTrack, slices: Slices) -> int:
        """Write slices on a track and return the number of track rows that they needed.

        Slices that cross others go to further tracks under this one, "<name> · overlap 2" and so on
        (`slices.track_row_boundaries`). So do slices that begin before the end of what an earlier call wrote. Those
        that would need more tracks than the limit allows are left out; `left_out` counts them.
        """
        if len(slices) == 0:
            return 0
        fields, extra_args = fields_of(slices, self._interned), self._extra_args.encode(slices)
        self._write_interned()
        free = self._free_track_rows.setdefault(track.uuid, FreeTrackRows())
        track_rows = chosen_encoder()(slices, fields, extra_args, self._sequence)
        self.left_out += len(slices) - sum(track_row.slices for track_row in track_rows)
        numbers = free.take((track_row.start_ns, track_row.end_ns) for track_row in track_rows)
        for number, track_row in zip(numbers, track_rows, strict=True):
            self._go_to(self._track_row(track, number))
            for block in track_row.packets:
                self._stream.write(block)
        return len(track_rows)

    def write_counter(self, track: PerfettoTrack, time_ns: Int64, values: Float64) -> None:
        """Write the values of a counter, [n], each of which holds from its time on."""
        if len(time_ns):
            self._go_to(track)
            self._stream.write(_counter_packets(self._sequence, time_ns, values))

    def _track_row(self, track: PerfettoTrack, number: int) -> PerfettoTrack:
        """Return the track itself for 0, else the track of its row `number`, added when it is first asked for."""
        track_rows = self._track_rows.setdefault(track.uuid, [track])
        if number == len(track_rows):
            track_rows.append(self.add_track(f"{track.name} · overlap {number + 1}", parent=track, order=number))
        return track_rows[number]

    def _go_to(self, track: PerfettoTrack) -> None:
        """Write that the packets that follow are on this track."""
        packet = self._packet()
        packet.trace_packet_defaults.track_event_defaults.track_uuid = track.uuid
        self._write(packet)

    def _write_interned(self) -> None:
        if self._interned.fresh.ByteSize():
            packet = self._packet()
            packet.sequence_flags = SEQ_NEEDS_INCREMENTAL_STATE
            packet.interned_data.CopyFrom(self._interned.fresh)
            self._interned.fresh.Clear()
            self._write(packet)

    def _describe(self, name: str, descriptor: Any) -> PerfettoTrack:
        descriptor.uuid = self._next_uuid
        self._next_uuid += 1
        packet = self._packet()
        packet.track_descriptor.CopyFrom(descriptor)
        self._write(packet)
        return PerfettoTrack(uuid=descriptor.uuid, name=name)

    def _packet(self) -> Any:
        return TracePacket(trusted_packet_sequence_id=self._sequence)

    def _write(self, packet: Any) -> None:
        self._stream.write(Trace(packet=[packet]).SerializeToString())


def _descriptor(name: str, order: int = 0) -> Any:
    """Return the descriptor of a track that is not merged with others, and shows tracks under it by their order."""
    return TrackDescriptor(
        name=encodable(name),
        sibling_order_rank=order,
        child_ordering=EXPLICIT,
        sibling_merge_behavior=SIBLING_MERGE_BEHAVIOR_NONE,
    )


def _counter_packets(sequence: int, time_ns: Int64, values: Float64) -> bytes:
    """Return a packet for each value, [n].

    All packets have the same length, so that numpy can copy one of them and put in the times and values. A time takes
    nine bytes, the varint of the largest int64.
    """
    largest = np.iinfo(np.int64).max
    event = TrackEvent(type=TYPE_COUNTER, double_counter_value=np.inf)
    packet = TracePacket(timestamp=largest, trusted_packet_sequence_id=sequence, track_event=event)
    template = np.frombuffer(Trace(packet=[packet]).SerializeToString(), dtype=np.uint8)
    packets = np.tile(template, (len(time_ns), 1))
    time_at = 3  # behind the packet's tag and length and the tag of its time
    for byte in range(9):
        packets[:, time_at + byte] = time_ns >> 7 * byte & 0x7F | (0x80 if byte < 8 else 0)
    packets[:, -8:] = values.astype("<f8").view(np.uint8).reshape(-1, 8)
    return packets.tobytes()


def chosen_encoder() -> Encoder:
    """Return the compiled encoder if it was built and $TRACEKIT_NATIVE allows it, else the portable one."""
    compiled = _compiled()
    chosen = compiled if use_native("Perfetto encoder", is_built=compiled is not None) else None
    return chosen or portable_packets.encode_track_rows


@cache
def _compiled() -> Encoder | None:
    try:
        encoder: Encoder = importlib.import_module("tracekit.render.perfetto.compiled_packets").encode_track_rows
    except ImportError as error:
        if error.name != "tracekit.render.perfetto._encoder":
            raise
        return None
    return encoder
