"""Samples of counters, and what synchronising events wait for: as both decoders read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.unit.read.decode.decoders import decode
from tracekit.model.events import EventTable


def decoded(trace: TraceBuilder, folder: Path, *, extra_args: bool = False) -> EventTable:
    return decode(trace.write(folder / "rank0.json"), extra_args=extra_args).events


def counter(trace: TraceBuilder, name: str, at: float, pid: int | str | None, **values: Any) -> TraceBuilder:
    return trace.raw(ph="C", name=name, pid=pid, tid=0, ts=trace.ts(at), args=values)


@pytest.mark.parametrize("extra_args", [False, True])
def test_each_number_of_a_counter_is_a_sample(tmp_path: Path, extra_args: bool) -> None:
    """GIVEN counters as Kineto, monitors and others write them THEN series have the names that tell them apart."""
    trace = TraceBuilder().op("aten::mm", 0, 10)
    counter(trace, "sm__cycles_active.avg", 1.5, "GPU 0 Counters", **{"": 700})
    counter(trace, "power", 2, 4000, value=312.5).kernel("gemm", 3, 1, launched_at=2)
    counter(trace, "clock", 3, 0, sm=1410, mem=1593).raw(ph="C", name="clock", pid=1, ts=trace.ts(4), args={"sm": 990})
    counters = decoded(trace, tmp_path, extra_args=extra_args).counters

    samples = zip(counters.time_ns.tolist(), counters.series.tolist(), counters.value.tolist(), strict=True)
    assert [((ns - trace.wall_ns(0)) / 1000, counters.names[series], value) for ns, series, value in samples] == [
        (1.5, "GPU 0 Counters · sm__cycles_active.avg", 700),
        (2, "power", 312.5),
        (3, "0 · clock · sm", 1410),
        (3, "0 · clock · mem", 1593),
        (4, "1 · clock · sm", 990),
    ]


@pytest.mark.parametrize("odd", [{}, {"state": "P0"}, {"on": True}, {"a": None}, {"a": [1]}])
def test_a_counter_without_a_number_is_no_sample(tmp_path: Path, odd: Any) -> None:
    trace = counter(TraceBuilder().op("aten::mm", 0, 10), "x", 1, 0, v=1)
    trace.raw(ph="C", name="x", pid=0, ts=trace.ts(2), args=odd)
    assert decoded(trace, tmp_path).counters.value.tolist() == [1]


def test_what_a_stream_and_the_host_wait_for(tmp_path: Path) -> None:
    """As CUPTI records it: -1 or the largest number for no stream and no call."""
    trace = TraceBuilder().op("aten::mm", 0, 10)
    waits = {"wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 32}
    trace.event("Stream Wait Event", "cuda_sync", 1, 1, pid=0, thread=7, args={"stream": 7, "correlation": 40} | waits)
    nothing = {"stream": (1 << 32) - 1, "wait_on_stream": -1, "wait_on_cuda_event_record_corr_id": -1}
    trace.event("Context Sync", "cuda_sync", 2, 1, pid=0, thread=-1, args=nothing)
    actual = decoded(trace, tmp_path).stream_waits

    columns = (actual.row, actual.stream, actual.awaited_stream, actual.record)
    assert [column.tolist() for column in columns] == [[1, 2], [7, -1], [20, -1], [32, -1]]
