"""Entries of the flight recorder to operators and spans: threads, groups, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.builders import TraceBuilder
from tracekit.analysis.communication.parts import COMMUNICATION
from tracekit.analysis.events.flight_recorder import flight_recorder_notes
from tracekit.analysis.per_rank.options import SummaryOptions
from tracekit.analysis.per_rank.summarize import summarize_trace
from tracekit.analysis.timeline.parts import FLIGHT_RECORDER
from tracekit.model.communication import FlightRecorderMatch, Unjoined
from tracekit.model.metadata import Group
from tracekit.model.summary import RankSummary
from tracekit.read.decode.portable import decode

Summarize = Callable[[TraceBuilder], RankSummary]
WORLD = Group(id=0, name="0", desc="default_pg", backend="gloo", parallelism="dp", ranks="world")


@pytest.fixture
def summarize(tmp_path: Path) -> Summarize:
    def run(trace: TraceBuilder) -> RankSummary:
        return summarize_trace(decode(trace.write(tmp_path / "rank0.json", "compact")), 0, SummaryOptions())

    return run


def test_an_entry_of_another_thread_is_not_given_to_an_operator_that_runs_meanwhile(summarize: Summarize) -> None:
    trace = TraceBuilder().step(0, 0, 100)
    trace.gloo("all_reduce", 20, 10, issued_at=10, issued_for=5)
    own = trace.record("all_reduce", 1, created_at=12)
    other = msgspec.structs.replace(trace.record("all_reduce", 7, created_at=13), on_step_thread=False)
    own = msgspec.structs.replace(own, on_step_thread=True)

    joins = summarize(trace.capture(collectives=[own, other]))[FLIGHT_RECORDER]

    assert joins is not None
    assert (joins.recorded, joins.joined) == (2, 1)
    assert [(missed.count, missed.expected) for missed in joins.unjoined] == [(1, True)]


def test_spans_keep_to_the_group_of_their_thread(summarize: Summarize) -> None:
    """GIVEN the second group's all-reduce runs first THEN each group has the time of its own."""
    trace = TraceBuilder().step(0, 0, 100)
    first = msgspec.structs.replace(WORLD, threads=[trace.gloo_threads[0]])
    second = Group(
        id=1, name="1", desc="half", backend="gloo", parallelism=None, ranks=[0], threads=[trace.gloo_threads[1]]
    )
    trace.gloo("all_reduce", 50, 30, issued_at=10, issued_for=2)
    trace.gloo("all_reduce", 20, 5, issued_at=14, issued_for=2, runloop=1)
    records = [trace.record("all_reduce", 1, created_at=11), trace.record("all_reduce", 1, created_at=15, group=1)]

    rows = summarize(trace.capture(collectives=records, groups=[first, second]))[COMMUNICATION]

    assert {row.group and row.group.description: row.total_ns for row in rows} == {"default_pg": 30_000, "half": 5_000}


def test_a_collective_without_a_span_is_named_by_what_came_after_it(summarize: Summarize) -> None:
    """GIVEN three operators and a span for the second THEN the third was not over, and the first is a gap."""
    trace = TraceBuilder().step(0, 0, 100)
    for at in (10, 20, 30):
        trace.op("c10d::allreduce_", at, 5)
    trace.event("gloo:all_reduce", "user_annotation", 22, 5, thread=trace.gloo_threads[0], args={})
    records = [trace.record("all_reduce", seq, created_at=at) for seq, at in enumerate((11, 21, 31))]
    # An earlier one would take the span if its operator had a kind of its own.
    trace.events[1]["name"] = "c10d::broadcast_"
    records[0] = msgspec.structs.replace(records[0], kind="broadcast")

    summary = summarize(trace.capture(collectives=records))

    assert summary[FLIGHT_RECORDER] == FlightRecorderMatch(
        recorded=3,
        unjoined=(
            Unjoined(
                kind="all_reduce", reason="still queued or running when the recording ended", count=1, expected=True
            ),
            Unjoined(kind="broadcast", reason="without a span of its own", count=1, expected=False),
        ),
    )
    (note,) = [note for note in summary.notes if note.kind == "unlinked"]
    assert note.severity == "warning"
    assert note.text.startswith("rank 0: rank0.json: 2 of 3 collectives of the flight recorder are not joined")


def test_what_is_expected_is_no_defect() -> None:
    missed = Unjoined(kind="all_reduce", reason="a reason", count=2, expected=True)
    (expected,) = flight_recorder_notes(FlightRecorderMatch(recorded=4, unjoined=(missed,)), "rank0.json")
    (found,) = flight_recorder_notes(
        FlightRecorderMatch(
            recorded=4, unjoined=(missed, Unjoined(kind="broadcast", reason="lost", count=1, expected=False))
        ),
        "f",
    )

    assert (expected.severity, expected.is_defect) == ("info", False)
    assert (found.severity, found.is_defect) == ("warning", True)
    assert flight_recorder_notes(FlightRecorderMatch(recorded=4), "f") == flight_recorder_notes(None, "f") == []


def test_recordings_of_a_rank_add_up() -> None:
    missed = Unjoined(kind="all_reduce", reason="a reason", count=2, expected=True)

    merged = FLIGHT_RECORDER.merge(
        [FlightRecorderMatch(recorded=4, unjoined=(missed,)), FlightRecorderMatch(recorded=3, unjoined=(missed,))]
    )

    assert merged is not None
    assert (merged.recorded, merged.joined, len(merged.unjoined)) == (7, 3, 1)
    assert FLIGHT_RECORDER.merge([None]) is None
