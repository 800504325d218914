"""Entries of the flight recorder are matched to operators and spans; the others are counted with a reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import TraceBuilder
from tests.unit.explain.summarized import Summarize
from tracekit.explain.communication.tables import COMMUNICATION_SUMS
from tracekit.model.communication import FlightRecorderMatch, Unjoined
from tracekit.model.metadata import Group
from tracekit.rank.recorded_steps import FLIGHT_RECORDER

WORLD = Group(id=0, name="0", desc="default_pg", backend="gloo", parallelism="dp", ranks="world")


@pytest.mark.parametrize("difference_us", [-15, 150])
def test_entries_are_matched_where_the_clocks_of_profiler_and_recorder_differ(
    difference_us: int, summarize: Summarize
) -> None:
    """GIVEN a profiler that took its time of the machine's clock while it was interrupted."""
    trace = TraceBuilder().step(0, 0, 9000)
    records = []
    for seq, at in enumerate(range(1000, 6000, 1000)):
        trace.gloo("all_reduce", at + 40, 100, issued_at=at, issued_for=30)
        records.append(trace.record("all_reduce", 1 + seq, created_at=at + 10 + seq + difference_us))

    match = summarize(trace.capture(collectives=records))[FLIGHT_RECORDER]

    assert match == FlightRecorderMatch(recorded=5, unjoined=())


def test_an_entry_far_from_any_operator_moves_no_clock(summarize: Summarize) -> None:
    trace = TraceBuilder().step(0, 0, 9000)
    trace.gloo("all_reduce", 1040, 100, issued_at=1000, issued_for=30)
    records = [trace.record("all_reduce", 1, created_at=1010), trace.record("all_reduce", 2, created_at=1200)]

    match = summarize(trace.capture(collectives=records))[FLIGHT_RECORDER]

    assert match is not None
    assert (match.recorded, match.joined) == (2, 1)


def test_spans_match_operators_of_their_threads_group(summarize: Summarize) -> None:
    """GIVEN that the second group's all-reduce runs first THEN each group has the time of its all-reduce."""
    trace = TraceBuilder().step(0, 0, 100)
    first = replace(WORLD, threads=[trace.gloo_threads[0]])
    second = Group(
        id=1, name="1", desc="half", backend="gloo", parallelism=None, ranks=[0], threads=[trace.gloo_threads[1]]
    )
    trace.gloo("all_reduce", 50, 30, issued_at=10, issued_for=2)
    trace.gloo("all_reduce", 20, 5, issued_at=14, issued_for=2, runloop=1)
    records = [trace.record("all_reduce", 1, created_at=11), trace.record("all_reduce", 1, created_at=15, group=1)]

    rows = summarize(trace.capture(collectives=records, groups=[first, second]))[COMMUNICATION_SUMS]

    assert {row.group and row.group.description: row.total_ns for row in rows} == {"default_pg": 30_000, "half": 5_000}


def test_the_reason_for_a_missing_span_depends_on_later_spans(summarize: Summarize) -> None:
    """GIVEN three operators and a span for the second THEN the third was still running, and the first lacks its
    span.
    """
    trace = TraceBuilder().step(0, 0, 100)
    for at in (10, 20, 30):
        trace.op("c10d::allreduce_", at, 5)
    trace.event("gloo:all_reduce", "user_annotation", 22, 5, thread=trace.gloo_threads[0], args={})
    records = [trace.record("all_reduce", seq, created_at=at) for seq, at in enumerate((11, 21, 31))]
    # The first operator has another kind, else it would take the span.
    trace.events[1]["name"] = "c10d::broadcast_"
    records[0] = replace(records[0], kind="broadcast")

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
    (note,) = [note for note in summary.notes if note.id == "unlinked"]
    assert note.severity == "warning"
    assert note.text.startswith("rank 0: rank0.json: 2 of 3 collectives of the flight recorder are not joined")


def test_matches_of_several_recordings_add_up() -> None:
    unjoined = Unjoined(kind="all_reduce", reason="a reason", count=2, expected=True)

    merged = FLIGHT_RECORDER.merge(
        [FlightRecorderMatch(recorded=4, unjoined=(unjoined,)), FlightRecorderMatch(recorded=3, unjoined=(unjoined,))]
    )

    assert merged is not None
    assert (merged.recorded, merged.joined, len(merged.unjoined)) == (7, 3, 1)
    assert FLIGHT_RECORDER.merge([None]) is None
