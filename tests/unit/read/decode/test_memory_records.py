"""Memory records: the columns of `[memory]` events from both decoders, and what malformed ones cost."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.places import DATA
from tests.unit.read.decode.decoders import decode
from tracekit.model.events import ABSENT, EventTable
from tracekit.read.decode.table import MEMORY

CPU_MEMORY = DATA / "cpu_memory"
GPU = (1, 3)


def decoded(trace: TraceBuilder, folder: Path) -> EventTable:
    return decode(trace.write(folder / "rank0.json")).events


def records(events: EventTable) -> list[tuple[int, ...]]:
    """Return (time, device type, device id, change, allocated, reserved) of each record."""
    return list(zip(*(getattr(events.memory, name).tolist() for name in MEMORY), strict=True))


def one_of_each() -> TraceBuilder:
    return TraceBuilder().op("aten::empty", 0, 10).raw(ph="i", s="g", name="Iteration Start", ts=TraceBuilder().ts(1))


@pytest.mark.parametrize("absolute", [False, True])
def test_the_values_of_a_record(tmp_path: Path, absolute: bool) -> None:
    """GIVEN allocations and frees of two devices, some of one byte THEN all are exact to the ns and the byte."""
    trace = TraceBuilder(absolute=absolute).op("aten::empty", 0, 10)
    trace.memory(1.001, 4096, allocated=5000, reserved=2 << 20, device=GPU)
    trace.memory(2, 1, allocated=1)
    trace.memory(3.999, -1, allocated=0)
    trace.memory(3.5, -4096, allocated=904, reserved=2 << 20, device=GPU)
    events = decoded(trace, tmp_path)
    assert records(events) == [
        (trace.wall_ns(1.001), *GPU, 4096, 5000, 2 << 20),
        (trace.wall_ns(2), 0, ABSENT, 1, 1, 0),
        (trace.wall_ns(3.999), 0, ABSENT, -1, 0, 0),
        (trace.wall_ns(3.5), *GPU, -4096, 904, 2 << 20),
    ]
    assert (len(events), events.other_phases) == (1, {})


@pytest.mark.parametrize("odd", [None, "4096", 0.5, 1e30, 2**62, -(2**80), True, [1], {"a": 1}, ""])
def test_a_record_without_a_usable_size_counts_as_an_instant(tmp_path: Path, odd: Any) -> None:
    trace = one_of_each().memory(1, 8, allocated=8).memory(2, 0, allocated=16, Bytes=odd).memory(3, 8, allocated=24)
    events = decoded(trace, tmp_path)
    assert [(time_ns, change) for time_ns, _, _, change, *_ in records(events)] == [
        (trace.wall_ns(1), 8),
        (trace.wall_ns(3), 8),
    ]
    assert (len(events), events.other_phases) == (1, {"i": 2})


@pytest.mark.parametrize("odd", [None, "4096", 0.5, 2**62, True, [1], {"a": 1}])
@pytest.mark.parametrize(
    ("key", "column"),
    [("Device Type", 1), ("Device Id", 2), ("Total Allocated", 4), ("Total Reserved", 5)],
)
def test_a_malformed_value_of_a_record_is_absent(tmp_path: Path, key: str, column: int, odd: Any) -> None:
    trace = one_of_each().memory(1, 8, allocated=80, reserved=800, device=GPU, **{key: odd})
    expected = [trace.wall_ns(1), *GPU, 8, 80, 800]
    expected[column] = ABSENT
    events = decoded(trace, tmp_path)
    assert records(events) == [tuple(expected)]
    assert (len(events), events.other_phases) == (1, {"i": 1})


@pytest.mark.parametrize("broken", [{"ts": None}, {"ts": "soon"}, {"args": {}}, {"name": None}, {"name": "memory"}])
def test_a_broken_record_costs_no_other_event(tmp_path: Path, broken: dict[str, Any]) -> None:
    trace = one_of_each().memory(1, 8, allocated=8)
    trace.events[-1] |= broken
    trace.memory(2, 16, allocated=24).op("aten::add", 5, 1)
    events = decoded(trace, tmp_path)
    assert [record[0] for record in records(events)] == [trace.wall_ns(2)]
    assert (len(events), events.other_phases) == (2, {"i": 2})


def test_the_same_arguments_of_other_events_are_no_records(tmp_path: Path) -> None:
    odd = {"Bytes": [1, 2], "Device Id": "one", "Device Type": None, "Total Allocated": {}, "Total Reserved": 1.5}
    trace = one_of_each().op("mine", 3, 1, **odd).event("no such phase", "x", 4, 1, args=odd)
    events = decoded(trace, tmp_path)
    assert (len(events), len(events.memory)) == (3, 0)


def test_a_record_a_day_away_is_dropped_with_a_note(tmp_path: Path) -> None:
    trace = one_of_each().memory(1, 8, allocated=8).memory(2e11, 8, allocated=16)
    result = decode(trace.write(tmp_path / "rank0.json"))
    assert [record[0] for record in records(result.events)] == [trace.wall_ns(1)]
    assert [(note.id, note.events_dropped) for note in result.notes] == [("out-of-range", 1)]


def test_a_cut_off_trace_keeps_the_records_before_the_cut(tmp_path: Path) -> None:
    trace = one_of_each().memory(1, 8, allocated=8).memory(2, 8, allocated=16)
    path = tmp_path / "rank0.json"
    path.write_bytes(trace.text()[:-60])
    assert [record[0] for record in records(decode(path).events)] == [trace.wall_ns(1)]


@pytest.mark.parametrize(("window", "count"), [("step-000000003", 138), ("step-000000009", 6)])
def test_all_records_of_a_real_trace_are_kept(window: str, count: int) -> None:
    """The same as the standard library reads."""
    path = CPU_MEMORY / window / "rank-000000.json.gz"
    expected = [e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if e["name"] == "[memory]"]
    events = decode(path).events
    assert len(events.memory) == len(expected) == count
    assert events.memory.change_bytes.tolist() == [e["args"]["Bytes"] for e in expected]
    assert events.memory.allocated_bytes.tolist() == [e["args"]["Total Allocated"] for e in expected]
    assert events.other_phases["i"] == 2
