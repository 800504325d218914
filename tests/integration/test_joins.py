"""Collectives of every form on two ranks: what the flight recorder lists is joined to its events, or said why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.recorded import Launch, notes_of, read_traces, result_of
from tests.old_torch import GLOO_EXCHANGES_LISTS, GLOO_NAMES_THREADS

WORKER = Path(__file__).with_name("join_worker.py")
RANKS, STEPS = 2, 2
OTHER_THREAD = "issued on a thread that the profiler does not record"
OUTSIDE = "issued outside of every recorded operator"
NOT_OVER = "still queued or running when the recording ended"


@pytest.fixture(scope="module")
def recorded(torchrun: Launch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("joins")
    torchrun(WORKER, out)
    return out


def counts(result: dict[str, Any], rank: int = 0) -> dict[str, int]:
    """Collectives of each kind that one rank ran in its steps."""
    rows = [row for row in result["communication"] if row["rank"] == rank]
    return {kind: sum(row["count"] for row in rows if row["kind"] == kind) for kind in {row["kind"] for row in rows}}


@pytest.mark.parametrize(
    ("scenario", "a_step"),
    [
        (
            "blocking",
            {"all_reduce": 1, "broadcast": 1, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1},
        ),
        ("asynchronous", {"all_reduce": 5}),
        ("lists", {"all_gather": 1, "reduce_scatter": 1} | ({"all_to_all": 1} if GLOO_EXCHANGES_LISTS else {})),
        ("coalesced", {"all_reduce": 1, "all_gather": 1}),
        ("barriers", {"barrier": 3}),
        ("rooted", {"reduce": 1, "gather": 1, "scatter": 1}),
        ("split_sizes", {"all_to_all": 1}),
        ("several_groups", {"all_reduce": 6}),
        ("group_of_a_step", {"all_reduce": 1}),
        ("functional_collectives", {"all_reduce": 2, "all_to_all": 1}),
    ],
)
def test_every_collective_is_joined(recorded: Path, scenario: str, a_step: dict[str, int]) -> None:
    result = result_of(recorded / scenario)

    assert [row["unjoined"] for row in result["joins"]] == [[]] * RANKS
    assert all(row["collectives"] == row["joined"] > 0 for row in result["joins"])
    assert counts(result) == {kind: STEPS * count for kind, count in a_step.items()}
    assert notes_of(result, "unlinked") == []


def test_lists_of_objects_are_joined(recorded: Path) -> None:
    """On a busy machine the flight recorder's clock may be off while one of them is issued: it is said, then."""
    result = result_of(recorded / "objects")

    for row in result["joins"]:
        missing = row["collectives"] - row["joined"]
        assert 0 <= missing <= 1 < row["joined"]
        assert [(part["count"], part["reason"]) for part in row["unjoined"]] == [(1, OUTSIDE)] * missing
    assert set(counts(result)) == {"all_gather", "broadcast", "gather", "scatter"}


def test_messages_are_no_collectives(recorded: Path) -> None:
    result = result_of(recorded / "messages")

    assert [(row["collectives"], row["unjoined"]) for row in result["joins"]] == [(0, [])] * RANKS
    assert counts(result) == {"send": STEPS, "recv": STEPS}


def test_equal_collectives_of_several_groups_keep_apart(recorded: Path) -> None:
    """Each thread of Gloo works for one group, whatever order the spans come in."""
    result = result_of(recorded / "several_groups")

    by_group = [row["count"] for row in result["communication"] if row["rank"] == 0]
    assert by_group == [2 * STEPS] * 3
    for trace in read_traces(recorded / "several_groups"):
        assert [len(group["threads"]) for group in trace["tracekit"]["groups"]] == [2 * GLOO_NAMES_THREADS] * 4


def test_what_another_thread_issues_is_counted_and_named(recorded: Path) -> None:
    result = result_of(recorded / "two_threads")

    for row in result["joins"]:
        assert row["collectives"] == 2 * 5 * STEPS
        assert row["unjoined"] == [{"kind": "all_reduce", "reason": OTHER_THREAD, "count": 5 * STEPS}]
    (first, second) = notes_of(result, "unlinked")
    assert first.startswith("rank 0: ")
    assert f"10 of 20 collectives of the flight recorder are not joined to an event: 10 all_reduce {OTHER_THREAD}" in (
        second
    )
    assert {note["severity"] for note in result["notes"] if note["id"] == "unlinked"} == {"info"}


def test_a_collective_that_outlives_the_window_is_named(recorded: Path) -> None:
    joins = {row["rank"]: row for row in result_of(recorded / "edges")["joins"]}

    assert joins[0]["unjoined"] == [{"kind": "all_reduce", "reason": NOT_OVER, "count": 1}]
    assert 1 not in joins  # nothing ran on it in the window, so that its times are n/a
