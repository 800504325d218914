"""Columns of slices -> Perfetto's native trace format, a byte stream a rank.

A trace is `write_header`, then what one `RankTraceWriter` a rank has written, concatenated in any order (ranks can be
written by different processes). Names, threads and tracks are described by the `perfetto` package's messages; slices
are encoded by numpy.

Time. Timestamps are written as they are: nanoseconds since the Unix epoch on the run's clock. They stand in the
trace's default clock (BOOTTIME), for which the trace processor converts nothing, so `slice.ts` in SQL is the number
that was passed in. The header says that this clock equals REALTIME, with which the UI can show the date and time.

Order. The trace processor sorts packets by time, keeping file order at equal times, and nests what it finds as a
stack. So opens and closes are written in the order of `nesting.boundary_order`; order between tracks does not matter.

Display. Perfetto's UI shows
* processes by `order` since v57 (the header asks for it); older versions by the number of slices;
* the threads of a process by `tid`, after which come the other tracks of the process, by name;
* tracks under another track by `order`; tracks without a parent by name, whatever their `order`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    BUILTIN_CLOCK_BOOTTIME,
    BUILTIN_CLOCK_REALTIME,
    Trace,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)

from tracekit.model.events import ABSENT, Bool, Int32, Int64
from tracekit.render.merged.nesting import lane_boundaries
from tracekit.render.perfetto.wire import Unsigned, assemble, fixed_field, message_field, uint_field

__all__ = ["PerfettoTrack", "RankTraceWriter", "write_header"]

_FIRST_SEQUENCE = 2  # 0 means "none", and 1 is the tracing service's own
_TRACKS_PER_RANK = 1 << 20
_TYPES = np.array([TrackEvent.TYPE_SLICE_END, TrackEvent.TYPE_SLICE_BEGIN], dtype=np.uint64)
_BLOCK = 1 << 15  # packets encoded at once: what a block needs fits into a CPU's cache


@dataclass(frozen=True, kw_only=True)
class PerfettoTrack:
    """A row of the trace to write on, or to put others under. `pid` is None unless it is a process."""

    uuid: int
    name: str
    pid: int | None = None


def write_header(stream: BinaryIO, *, start_ns: int) -> None:
    """Write what concerns the whole trace, once, before the ranks. start_ns: a time in the trace, Unix epoch."""
    clock = TracePacket(trusted_packet_sequence_id=_FIRST_SEQUENCE - 1)
    for clock_id in (BUILTIN_CLOCK_BOOTTIME, BUILTIN_CLOCK_REALTIME):
        clock.clock_snapshot.clocks.add(clock_id=clock_id, timestamp=start_ns)
    root = TracePacket(trusted_packet_sequence_id=_FIRST_SEQUENCE - 1)
    root.track_descriptor.uuid = 0  # stands for the trace
    root.track_descriptor.process_ordering = TrackDescriptor.PROCESS_ORDERING_EXPLICIT
    root.track_descriptor.thread_ordering = TrackDescriptor.THREAD_ORDERING_EXPLICIT
    stream.write(Trace(packet=[clock, root]).SerializeToString())


class RankTraceWriter:
    """Writes one rank's tracks and slices to a binary stream.

    Each rank has its own packet sequence (so its own interned names) and its own range of track ids, both made from
    `rank`, an integer >= 0. Memory does not grow with what is written, but for the distinct names.

        with open("rank3.pftrace", "wb") as stream:
            write_header(stream, start_ns=int(events.start_ns.min()))
            writer = RankTraceWriter(stream, rank=3)
            host = writer.add_process("rank 3 · host", pid=4, order=3)
            main = writer.add_thread(host, "main", tid=4001)
            writer.write_slices(main, start_ns, duration_ns, name_ids, strings)
    """

    def __init__(self, stream: BinaryIO, rank: int) -> None:
        self._stream = stream
        self._sequence = _FIRST_SEQUENCE + rank
        self._next_uuid = (rank + 1) * _TRACKS_PER_RANK
        self._name_iids: dict[str, int] = {}
        self._category_iids: dict[str, int] = {}
        opening = self._packet()
        opening.first_packet_on_sequence = True
        opening.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        self._write(opening)

    def add_process(self, name: str, *, pid: int, order: int = 0) -> PerfettoTrack:
        """A process: threads and tracks go under it. pid: unique in the trace, >= 1 (0 is Perfetto's idle process)."""
        if pid < 1:
            raise ValueError(f"pid must be at least 1, not {pid}")
        descriptor = TrackDescriptor(sibling_order_rank=order)
        descriptor.process.pid = pid
        descriptor.process.process_name = _encodable(name)
        return self._describe(name, descriptor, pid=pid)

    def add_thread(self, process: PerfettoTrack, name: str, *, tid: int) -> PerfettoTrack:
        """A thread (or stream) of a process, shown in the order of `tid`: unique in the trace, not the process's pid.

        ValueError: `process` is not a process, or `tid` is its pid, which would make this the main thread.
        """
        if process.pid is None or tid == process.pid:
            raise ValueError(f"thread {name!r} (tid {tid}) cannot belong to {process}")
        descriptor = TrackDescriptor(sibling_order_rank=tid)
        descriptor.thread.pid = process.pid
        descriptor.thread.tid = tid
        descriptor.thread.thread_name = _encodable(name)
        return self._describe(name, descriptor)

    def add_track(self, name: str, *, parent: PerfettoTrack | None = None, order: int = 0) -> PerfettoTrack:
        """A track of its own under a process, thread or track, or at the top. Equal names are not merged."""
        descriptor = TrackDescriptor(
            name=_encodable(name),
            sibling_order_rank=order,
            child_ordering=TrackDescriptor.EXPLICIT,
            sibling_merge_behavior=TrackDescriptor.SIBLING_MERGE_BEHAVIOR_NONE,
        )
        if parent is not None:
            descriptor.parent_uuid = parent.uuid
        return self._describe(name, descriptor)

    def write_slices(
        self,
        track: PerfettoTrack,
        start_ns: Int64,
        duration_ns: Int64,
        name_ids: Int32,
        strings: list[str],
        *,
        category_ids: Int32 | None = None,
    ) -> int:
        """Write all slices of a track, n rows in any order; returns the number of lanes that they needed.

        start_ns (Unix epoch), duration_ns: int64 [n], >= 0. name_ids, category_ids: int32 [n], indexes into `strings`
        or `ABSENT`. Slices that cross others go to further tracks under this one, "<name> · overlap 2" and so on
        (`nesting.assign_lanes`). One call a track: slices of different calls are not nested into each other.
        ValueError: columns of different lengths, a negative time, or an end beyond int64.
        """
        _check(start_ns, duration_ns, name_ids, category_ids)
        if len(start_ns) == 0:
            return 0
        if category_ids is None:
            category_ids = np.full(len(name_ids), ABSENT, dtype=np.int32)
        name_iids, category_iids = self._intern(strings, name_ids, category_ids)
        lanes = lane_boundaries(start_ns, duration_ns)
        for lane, boundaries in enumerate(lanes):
            on = self.add_track(f"{track.name} · overlap {lane + 1}", parent=track, order=lane) if lane else track
            for block in np.split(boundaries, range(_BLOCK, len(boundaries), _BLOCK)):
                is_open = block >= 0
                row = np.where(is_open, block, ~block)
                self._write_boundaries(
                    on,
                    is_open,
                    start_ns[row] + np.where(is_open, 0, duration_ns[row]),
                    name_iids[name_ids[row]],
                    category_iids[category_ids[row]],
                )
        return len(lanes)

    def _write_boundaries(
        self, track: PerfettoTrack, is_open: Bool, time_ns: Int64, name_iid: Unsigned, category_iid: Unsigned
    ) -> None:
        event = [
            *uint_field(TrackEvent.TYPE_FIELD_NUMBER, _TYPES[is_open.view(np.uint8)]),
            *fixed_field(TrackEvent.TRACK_UUID_FIELD_NUMBER, track.uuid),
            *uint_field(TrackEvent.NAME_IID_FIELD_NUMBER, name_iid, is_open & (name_iid > 0)),
            *uint_field(TrackEvent.CATEGORY_IIDS_FIELD_NUMBER, category_iid, is_open & (category_iid > 0)),
        ]
        packet = [
            *uint_field(TracePacket.TIMESTAMP_FIELD_NUMBER, time_ns.view(np.uint64)),
            *fixed_field(TracePacket.TRUSTED_PACKET_SEQUENCE_ID_FIELD_NUMBER, self._sequence),
            *fixed_field(TracePacket.SEQUENCE_FLAGS_FIELD_NUMBER, TracePacket.SEQ_NEEDS_INCREMENTAL_STATE),
            *message_field(TracePacket.TRACK_EVENT_FIELD_NUMBER, event),
        ]
        self._stream.write(assemble(message_field(Trace.PACKET_FIELD_NUMBER, packet), len(is_open)).data)

    def _intern(self, strings: list[str], name_ids: Int32, category_ids: Int32) -> tuple[Unsigned, Unsigned]:
        """Write the names and categories that the sequence has not seen; tables from string id to interned id."""
        packet = self._packet()
        packet.sequence_flags = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        tables = []
        for ids, known, entries in (
            (name_ids, self._name_iids, packet.interned_data.event_names),
            (category_ids, self._category_iids, packet.interned_data.event_categories),
        ):
            table = np.zeros(len(strings) + 1, dtype=np.uint64)  # 0 is "none"; the last entry answers for ABSENT
            used = np.zeros(len(strings) + 1, dtype=np.bool_)
            used[ids] = True
            for string_id in np.flatnonzero(used[:-1]).tolist():
                text = _encodable(strings[string_id])
                if text not in known:
                    known[text] = len(known) + 1
                    entries.add(iid=known[text], name=text)
                table[string_id] = known[text]
            tables.append(table)
        if packet.interned_data.ByteSize():
            self._write(packet)
        return tables[0], tables[1]

    def _describe(self, name: str, descriptor: TrackDescriptor, pid: int | None = None) -> PerfettoTrack:
        descriptor.uuid = self._next_uuid
        self._next_uuid += 1
        packet = self._packet()
        packet.track_descriptor.CopyFrom(descriptor)
        self._write(packet)
        return PerfettoTrack(uuid=descriptor.uuid, name=name, pid=pid)

    def _packet(self) -> TracePacket:
        return TracePacket(trusted_packet_sequence_id=self._sequence)

    def _write(self, packet: TracePacket) -> None:
        self._stream.write(Trace(packet=[packet]).SerializeToString())


def _check(start_ns: Int64, duration_ns: Int64, *ids: Int32 | None) -> None:
    lengths = {len(column) for column in (start_ns, duration_ns, *ids) if column is not None}
    if len(lengths) != 1:
        raise ValueError(f"columns of slices have different lengths: {sorted(lengths)}")
    if min(start_ns.min(initial=0), duration_ns.min(initial=0)) < 0:
        raise ValueError("a slice has a negative start or duration")
    if np.any(duration_ns > np.iinfo(np.int64).max - start_ns):
        raise ValueError("a slice ends beyond the range of int64 nanoseconds")


def _encodable(text: str) -> str:
    """Lone surrogates, which JSON can express and UTF-8 cannot, as question marks."""
    return text.encode("utf-8", errors="replace").decode("utf-8")
