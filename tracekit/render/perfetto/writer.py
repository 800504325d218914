"""Columns of slices -> Perfetto's native trace format, a byte stream a rank.

A trace is the format's `head`, then what one `RankTraceWriter` a rank has written, concatenated in any order (ranks can
be written by different processes). Names and tracks are described by the `perfetto` package's messages; slices are
encoded by `packets`.

Size. A trace of a million slices has two million packets, so that a field more or less counts: names, categories,
names of arguments and their texts are interned, a track is named once for all that follows on it, and a slice's end
says its time alone. Details, of which many slices have the same, are encoded once and copied.

Time. Timestamps are written as they are: nanoseconds since the Unix epoch on the run's clock. They stand in the
trace's default clock (BOOTTIME), for which the trace processor converts nothing, so `slice.ts` in SQL is the number
that was passed in. The header says that this clock equals REALTIME, with which the UI can show the date and time.

Order. The trace processor sorts packets by time, keeping file order at equal times, and nests what it finds as a
stack. So opens and closes are written in the order of `nesting.boundary_order`; order between tracks does not matter.

Display. Perfetto's UI shows
* processes by `order` since v57 (the header asks for it); older versions by the number of slices in their threads;
* tracks under another track by `order`; those right under a process, and those without a parent, by name in older
  versions. Threads would come before all tracks of their process, so that host threads are tracks here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    BUILTIN_CLOCK_BOOTTIME,
    BUILTIN_CLOCK_REALTIME,
    Trace,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)

from tracekit.model.events import Int64
from tracekit.render.perfetto.extra_args import DetailEncoder
from tracekit.render.perfetto.fields import Interned, encodable, fields_of
from tracekit.render.perfetto.packets import lanes_of
from tracekit.render.perfetto.portable_packets import event, event_packets
from tracekit.render.perfetto.wire import fixed64
from tracekit.render.trace.nesting import FreeLanes
from tracekit.render.trace.slices import Float64, Sink, Slices

__all__ = ["PerfettoFormat", "PerfettoTrack", "RankTraceWriter"]

_FIRST_SEQUENCE = 2  # 0 means "none", and 1 is the tracing service's own
_TRACKS_PER_RANK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class PerfettoFormat:
    """`start_ns`: a time in the trace, Unix epoch."""

    start_ns: int
    separator = b""
    tail = b""

    @property
    def head(self) -> bytes:
        """What concerns the whole trace, once, before the ranks."""
        clock = TracePacket(trusted_packet_sequence_id=_FIRST_SEQUENCE - 1)
        for clock_id in (BUILTIN_CLOCK_BOOTTIME, BUILTIN_CLOCK_REALTIME):
            clock.clock_snapshot.clocks.add(clock_id=clock_id, timestamp=self.start_ns)
        root = TracePacket(trusted_packet_sequence_id=_FIRST_SEQUENCE - 1)
        root.track_descriptor.uuid = 0  # stands for the trace
        root.track_descriptor.process_ordering = TrackDescriptor.PROCESS_ORDERING_EXPLICIT
        head: bytes = Trace(packet=[clock, root]).SerializeToString()
        return head

    def writer(self, stream: Sink, place: int) -> RankTraceWriter:
        return RankTraceWriter(stream, place)


@dataclass(frozen=True, kw_only=True)
class PerfettoTrack:
    """A row of the trace to write on, or to put others under."""

    uuid: int
    name: str


class RankTraceWriter:
    """Writes one rank's tracks and slices to a binary stream.

    Each rank has its own packet sequence (so its own interned names) and its own range of track ids, both made from
    `rank`, an integer >= 0. Memory does not grow with what is written, but for the distinct names.

        with open("rank3.pftrace", "wb") as stream:
            trace = PerfettoFormat(start_ns=int(events.start_ns.min()))
            stream.write(trace.head)
            writer = trace.writer(stream, 3)
            host = writer.add_process("rank 3 · host", pid=4, order=3)
            main = writer.add_track("main", parent=host)
            writer.write_slices(main, slices)
    """

    def __init__(self, stream: Sink, rank: int) -> None:
        self._stream = stream
        self._sequence = _FIRST_SEQUENCE + rank
        self._next_uuid = (rank + 1) * _TRACKS_PER_RANK
        self._interned = Interned()
        self._details = DetailEncoder(self._interned)
        self._free_lanes: dict[int, FreeLanes] = {}
        self._lanes: dict[int, list[PerfettoTrack]] = {}
        opening = self._packet()
        opening.first_packet_on_sequence = True
        opening.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        self._write(opening)

    def add_process(self, name: str, *, pid: int, order: int = 0) -> PerfettoTrack:
        """A process: tracks go under it. pid: unique in the trace, >= 1 (0 is Perfetto's idle process)."""
        if pid < 1:
            raise ValueError(f"pid must be at least 1, not {pid}")
        descriptor = TrackDescriptor(sibling_order_rank=order)
        descriptor.process.pid = pid
        descriptor.process.process_name = encodable(name)
        return self._describe(name, descriptor)

    def add_track(self, name: str, *, parent: PerfettoTrack | None = None, order: int = 0) -> PerfettoTrack:
        """A track of its own under a process or a track, or at the top. Equal names are not merged."""
        descriptor = TrackDescriptor(
            name=encodable(name),
            sibling_order_rank=order,
            child_ordering=TrackDescriptor.EXPLICIT,
            sibling_merge_behavior=TrackDescriptor.SIBLING_MERGE_BEHAVIOR_NONE,
        )
        if parent is not None:
            descriptor.parent_uuid = parent.uuid
        return self._describe(name, descriptor)

    def add_counter(
        self, name: str, *, unit: str = "", parent: PerfettoTrack | None = None, order: int = 0
    ) -> PerfettoTrack:
        """A track of numbers over time."""
        descriptor = TrackDescriptor(name=encodable(name), sibling_order_rank=order)
        descriptor.counter.unit_name = unit
        if parent is not None:
            descriptor.parent_uuid = parent.uuid
        return self._describe(name, descriptor)

    def write_slices(self, track: PerfettoTrack, slices: Slices) -> int:
        """Write all slices of a track; returns the number of lanes that they needed.

        Slices that cross others go to further tracks under this one, "<name> · overlap 2" and so on
        (`nesting.assign_lanes`), and so do those that begin before what another call has written ends.
        """
        if len(slices) == 0:
            return 0
        fields, details = fields_of(slices, self._interned), self._details.of(slices)
        self._write_interned()
        free = self._free_lanes.setdefault(track.uuid, FreeLanes())
        lanes = lanes_of(slices, fields, details, self._sequence)
        numbers = free.take((lane.start_ns, lane.end_ns) for lane in lanes)
        for number, lane in zip(numbers, lanes, strict=True):
            self._go_to(self._lane(track, number))
            for piece in lane.packets:
                self._stream.write(piece)
        return len(lanes)

    def write_counter(self, track: PerfettoTrack, time_ns: Int64, values: Float64) -> None:
        """Write the values of a counter, [n], each from its time on."""
        if len(time_ns):
            self._go_to(track)
            said = event(TrackEvent.TYPE_COUNTER) + fixed64(TrackEvent.DOUBLE_COUNTER_VALUE_FIELD_NUMBER)
            columns = [time_ns.view(np.uint64), values.astype(np.float64).view(np.uint64)]
            self._stream.write(event_packets(self._sequence, said, columns).tobytes())

    def _lane(self, track: PerfettoTrack, number: int) -> PerfettoTrack:
        """The track itself, and those under it in the order in which they are asked for."""
        lanes = self._lanes.setdefault(track.uuid, [track])
        if number == len(lanes):
            lanes.append(self.add_track(f"{track.name} · overlap {number + 1}", parent=track, order=number))
        return lanes[number]

    def _go_to(self, track: PerfettoTrack) -> None:
        """What follows is on this track: said once, and not in every packet."""
        packet = self._packet()
        packet.trace_packet_defaults.track_event_defaults.track_uuid = track.uuid
        self._write(packet)

    def _write_interned(self) -> None:
        if self._interned.fresh.ByteSize():
            packet = self._packet()
            packet.sequence_flags = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
            packet.interned_data.CopyFrom(self._interned.fresh)
            self._interned.fresh.Clear()
            self._write(packet)

    def _describe(self, name: str, descriptor: TrackDescriptor) -> PerfettoTrack:
        descriptor.uuid = self._next_uuid
        self._next_uuid += 1
        packet = self._packet()
        packet.track_descriptor.CopyFrom(descriptor)
        self._write(packet)
        return PerfettoTrack(uuid=descriptor.uuid, name=name)

    def _packet(self) -> TracePacket:
        return TracePacket(trusted_packet_sequence_id=self._sequence)

    def _write(self, packet: TracePacket) -> None:
        self._stream.write(Trace(packet=[packet]).SerializeToString())
