"""Build a merged trace packet by packet from Perfetto's messages, in the form that tracekit's views expect."""

from __future__ import annotations

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

START_NS = 1_752_000_000_123_456_789


class HandmadeTrace:
    """Builds tracks under tracks, and slices with arguments. Times are ns after `START_NS`."""

    def __init__(self) -> None:
        self._trace = Trace()
        self._uuids = 0

    def track(self, name: str, parent: int | None = None) -> int:
        descriptor = self._describe()
        descriptor.name = name
        if parent is not None:
            descriptor.parent_uuid = parent
        return self._uuids

    def slice(
        self,
        track: int,
        name: str,
        start_ns: int,
        length_ns: int,
        /,
        category: str = "tracekit",
        **arguments: int | str,
    ) -> None:
        event = self._event(track, TrackEvent.TYPE_SLICE_BEGIN, start_ns)
        event.name = name
        event.categories.append(category)
        for key, value in arguments.items():
            if isinstance(value, str):
                event.debug_annotations.add(name=key, string_value=value)
            else:
                event.debug_annotations.add(name=key, int_value=value)
        self._event(track, TrackEvent.TYPE_SLICE_END, start_ns + length_ns)

    def counter(self, name: str, parent: int, values: dict[int, float]) -> None:
        """Add a counter with `values` by time."""
        descriptor = self._describe()
        descriptor.name, descriptor.parent_uuid = name, parent
        descriptor.counter.unit_name = "bytes"
        track = self._uuids
        for after_ns, value in values.items():
            self._event(track, TrackEvent.TYPE_COUNTER, after_ns).double_counter_value = value

    def to_bytes(self) -> bytes:
        return bytes(self._trace.SerializeToString())

    def _describe(self):  # type: ignore[no-untyped-def]
        self._uuids += 1
        descriptor = self._trace.packet.add(trusted_packet_sequence_id=1).track_descriptor
        descriptor.uuid = self._uuids
        return descriptor

    def _event(self, track: int, kind: int, after_ns: int):  # type: ignore[no-untyped-def]
        packet = self._trace.packet.add(trusted_packet_sequence_id=1, timestamp=START_NS + after_ns)
        packet.track_event.track_uuid = track
        packet.track_event.type = kind
        return packet.track_event
