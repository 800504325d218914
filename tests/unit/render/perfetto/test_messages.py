"""The fields that tracekit writes are those of Perfetto's own messages."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from tracekit.render.perfetto import messages


def _described(descriptor: Any) -> dict[str, Any]:
    """Return the fields of a message by name."""
    described = descriptor_pb2.DescriptorProto()
    descriptor.CopyToProto(described)
    return {field.name: field for field in described.field}


def _pairs(ours: Any, theirs: Any) -> dict[str, tuple[Any, Any]]:
    """Return our description of a message and of all below it, by name, beside Perfetto's."""
    found = {ours.name: (ours, theirs)}
    for field in ours.fields:
        if field.message_type is not None and field.message_type.name not in found:
            found |= _pairs(field.message_type, theirs.fields_by_name[field.name].message_type)
    return found


PAIRS = _pairs(messages.Trace.DESCRIPTOR, perfetto_trace_pb2.Trace.DESCRIPTOR)


def test_every_message_is_part_of_a_trace() -> None:
    assert PAIRS.keys() == messages._FIELDS.keys()


@pytest.mark.parametrize("name", PAIRS)
def test_fields_have_the_numbers_and_types_of_perfetto(name: str) -> None:
    ours, theirs = map(_described, PAIRS[name])
    for field in ours:
        same_bytes = {ours[field].type, theirs[field].type} <= {ours[field].TYPE_INT32, ours[field].TYPE_ENUM}
        assert ours[field].number == theirs[field].number
        assert ours[field].label == theirs[field].label
        assert ours[field].type == theirs[field].type or same_bytes


@pytest.mark.parametrize(
    ("value", "theirs"),
    [
        (messages.BUILTIN_CLOCK_BOOTTIME, perfetto_trace_pb2.BUILTIN_CLOCK_BOOTTIME),
        (messages.BUILTIN_CLOCK_REALTIME, perfetto_trace_pb2.BUILTIN_CLOCK_REALTIME),
        (
            messages.SEQ_INCREMENTAL_STATE_CLEARED,
            perfetto_trace_pb2.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED,
        ),
        (messages.SEQ_NEEDS_INCREMENTAL_STATE, perfetto_trace_pb2.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE),
        (messages.TYPE_SLICE_BEGIN, perfetto_trace_pb2.TrackEvent.TYPE_SLICE_BEGIN),
        (messages.TYPE_SLICE_END, perfetto_trace_pb2.TrackEvent.TYPE_SLICE_END),
        (messages.TYPE_COUNTER, perfetto_trace_pb2.TrackEvent.TYPE_COUNTER),
        (messages.EXPLICIT, perfetto_trace_pb2.TrackDescriptor.EXPLICIT),
        (
            messages.SIBLING_MERGE_BEHAVIOR_NONE,
            perfetto_trace_pb2.TrackDescriptor.SIBLING_MERGE_BEHAVIOR_NONE,
        ),
    ],
)
def test_values_of_enumerations_are_those_of_perfetto(value: int, theirs: int) -> None:
    assert value == theirs
