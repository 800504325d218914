"""Which of two files of one rank counts, and does a file of no rank?"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.exchanges import rank as summary_of
from tests.builders import TraceBuilder
from tests.unit.explain.gpu_runs import gpu_rank, result
from tracekit.loading.load import without_duplicates, without_files_of_no_rank
from tracekit.model.summary import RankFailure, RankSummary


def of_rank(rank: int, answer: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [row for row in answer["steps"] if row["rank"] == rank]
    assert rows
    return rows


@pytest.mark.parametrize("name", ["rank0.json", "rank8.json"])
def test_a_damaged_file_that_says_to_be_of_a_rank_changes_nothing_of_that_rank(tmp_path: Path, name: str) -> None:
    """GIVEN three good ranks, and beside them a file of one operator that says it is of rank 2.

    It comes before the good file of rank 2, or after it.
    """
    good, all_files = tmp_path / "good", tmp_path / "all"
    for folder in (good, all_files):
        for rank in (1, 2, 3):
            gpu_rank(rank, 9).write(folder / f"rank{rank}.json")
    TraceBuilder(rank=2, world_size=9).op("aten::add", 0, 1).write(all_files / name, tail=True)

    expected, actual = result(good), result(all_files)

    assert actual["run"]["ranks"] == [1, 2, 3]
    assert of_rank(2, actual) == of_rank(2, expected)
    assert [note["file"] for note in actual["notes"] if note["id"] == "duplicate-rank"] == [name]


def outcome(rank: int, file: str) -> RankSummary:
    return replace(summary_of(rank), files=(file,))


def files_that_count(expected: list[int], outcomes: list[RankSummary | RankFailure]) -> dict[int, str]:
    result = without_duplicates(expected, outcomes)
    assert len(result) == len(outcomes)
    return {one.rank: one.files[0] for one in result if isinstance(one, RankSummary)}


def test_of_two_files_that_were_taken_for_other_ranks_the_first_counts() -> None:
    assert files_that_count([7, 8], [outcome(1, "a"), outcome(1, "b")]) == {1: "a"}


def test_a_file_that_could_not_be_read_takes_no_rank() -> None:
    failed = RankFailure(rank=1, notes=())
    assert files_that_count([1, 8], [failed, outcome(1, "odd")]) == {1: "odd"}


def test_a_file_that_joins_the_processes_of_all_ranks_changes_nothing(tmp_path: Path) -> None:
    """GIVEN three ranks, and beside them a file with the events of all three, each with a pid, and without a header."""
    good, all_files = tmp_path / "good", tmp_path / "all"
    merged: list[dict[str, Any]] = []
    for rank in range(3):
        for folder in (good, all_files):
            gpu_rank(rank, 3).write(folder / f"rank{rank}.json")
        events = json.loads(gpu_rank(rank, 3).op("aten::mm", 0, 5).text())["traceEvents"]
        merged += [event | {"pid": 1000 * rank + event["pid"]} for event in events if isinstance(event["pid"], int)]
    (all_files / "merged.json").write_text(json.dumps({"traceEvents": merged}))

    expected, actual = result(good), result(all_files)

    assert actual["run"]["world_size"] == 3
    assert {key for key in expected if actual[key] != expected[key]} <= {"notes", "run"}
    assert {key for key in expected["run"] if actual["run"][key] != expected["run"][key]} <= {"path"}
    left_out = "rank 3: merged.json: the job has 3 ranks, and this file is of none of them; left out"
    assert left_out in [note["text"] for note in actual["notes"]]


@pytest.mark.parametrize(
    ("rank", "unmeasured", "says_ranks"), [(1, "it mixes processes", None), (2, None, None), (2, "it mixes", 3)]
)
def test_a_file_that_may_be_of_a_rank_counts(rank: int, unmeasured: str | None, says_ranks: int | None) -> None:
    """GIVEN two ranks, and a file that is one of them, or has times, or says that there are three."""
    odd = replace(outcome(rank, "odd"), unmeasured=unmeasured, world_size=says_ranks)
    good = [replace(outcome(number, f"{number}"), world_size=2) for number in range(2) if number != rank]
    assert odd in without_files_of_no_rank([*good, odd])


def test_a_process_that_the_job_has_no_rank_for_is_left_out() -> None:
    """GIVEN two ranks, and a file without a rank or times, as of a launcher, which is numbered by its name."""
    good = [replace(outcome(number, f"{number}"), world_size=2) for number in range(2)]
    *kept, left_out = without_files_of_no_rank(
        [*good, replace(outcome(2, "launcher"), unmeasured="no kernels", world_size=None)]
    )
    assert kept == good
    assert isinstance(left_out, RankFailure)
    assert [note.id for note in left_out.notes] == ["no-rank"]
