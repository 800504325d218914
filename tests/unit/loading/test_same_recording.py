"""Two files of one recording that begin at different times: which one counts?"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.unit.explain.gpu_runs import gpu_rank, result

Events = list[dict[str, Any]]
RANKS = 4


def whole(rank: int, *, steps: range = range(3)) -> TraceBuilder:
    """Three steps, and before them an operator, with which only a whole file begins."""
    trace = gpu_rank(rank, RANKS, steps=steps).op("aten::ones", -10, 5)
    trace.events.insert(0, trace.events.pop())
    return trace


def write_run(folder: Path) -> Path:
    for rank in range(RANKS):
        whole(rank).write(folder / f"rank{rank}.json")
        os.utime(folder / f"rank{rank}.json", (1e9, 1e9))
    return folder


def is_step(event: dict[str, Any]) -> bool:
    return str(event["name"]).startswith("ProfilerStep#")


def without_steps(events: Events) -> Events:
    return [event for event in events if not is_step(event)]


def without_operators(events: Events) -> Events:
    return [event for event in events if event.get("cat") != "cpu_op"]


def communication_alone(events: Events) -> Events:
    return [event for event in events if event["ph"] == "M" or "nccl" in event["name"] or "Launch" in event["name"]]


def first_step_alone(events: Events) -> Events:
    begin = min(event["ts"] for event in events if is_step(event))
    return [event for event in events if event["ph"] == "M" or begin <= event["ts"] < begin + 100]


def numbered_from_seven(events: Events) -> Events:
    for event in events:
        if is_step(event):
            event["name"] = f"ProfilerStep#{7 + int(event['name'].partition('#')[2])}"
    return without_operators(events)


def write_copy(folder: Path, change: Callable[[Events], Events]) -> None:
    document = json.loads(whole(2).text())
    document["traceEvents"] = change(document["traceEvents"])
    (folder / "rank2_new.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda events: without_steps(without_operators(events)), ", without steps"),
        (communication_alone, ", without steps"),
        (first_step_alone, ", with fewer complete steps"),
        (without_operators, ", with fewer events"),
        (numbered_from_seven, ", with fewer events"),
    ],
    ids=["without steps", "communication", "one step", "without operators", "renumbered"],
)
def test_a_newer_file_with_less_of_the_recording_changes_nothing(
    tmp_path: Path, change: Callable[[Events], Events], why: str
) -> None:
    expected = result(write_run(tmp_path / "good"))
    write_copy(write_run(tmp_path / "all"), change)

    actual = result(tmp_path / "all")

    (note,) = [note for note in actual["notes"] if note["id"] == "duplicate-rank"]
    assert note["text"] == f"rank 2: rank2_new.json: another file of the same recording{why}; rank2.json is used"
    assert [other for other in actual["notes"] if other != note] == expected["notes"]
    different = {key for key in expected if actual[key] != expected[key]}
    assert different <= {"notes", "path", "run"}
    assert {key for key in expected["run"] if actual["run"][key] != expected["run"][key]} <= {"path", "paths"}


def test_of_equal_files_the_newest_counts(tmp_path: Path) -> None:
    """GIVEN a file whose times were moved by one millionth of a second, as if aligned with other clocks."""
    write_run(tmp_path)
    moved = whole(2)
    moved.base_ns += 1000
    moved.write(tmp_path / "rank2_new.json")

    notes = [note for note in result(tmp_path)["notes"] if note["id"] == "duplicate-rank"]

    assert [note["text"] for note in notes] == [
        "rank 2: rank2.json: another file of the same recording; rank2_new.json is used"
    ]


def test_a_window_recorded_after_the_clock_was_set_back_counts_too(tmp_path: Path) -> None:
    """GIVEN a second window of the rank, with other steps, which on its clock lies within the first one."""
    whole(0).write(tmp_path / "rank0.json")
    second = whole(0, steps=range(7, 9))
    second.base_ns -= 650_000
    second.write(tmp_path / "rank0_next.json")

    actual = result(tmp_path)

    assert [note["id"] for note in actual["notes"] if note["id"] == "duplicate-rank"] == []
    assert sorted(row["step"] for row in actual["steps"]) == [0, 1, 2, 7, 8]


def test_recordings_without_steps_that_follow_each_other_all_count(tmp_path: Path) -> None:
    for place in range(2):
        trace = TraceBuilder(0, 1)
        trace.base_ns += 1_000_000 * place
        trace.kernel("gemm", 0, 50, launched_at=0).write(tmp_path / f"rank0_{place}.json")

    assert [note["id"] for note in result(tmp_path)["notes"] if note["id"] == "duplicate-rank"] == []
