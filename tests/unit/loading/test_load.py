"""Which ranks, steps and windows does a run have: missing and broken ranks, windows, workers and layouts?"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder, write_run
from tests.unit.explain.gpu_runs import gpu_rank, result
from tracekit.errors import InputError, UsageError
from tracekit.loading.load import load
from tracekit.loading.options import StepSelection, SummaryOptions
from tracekit.render.json_result import result_json
from tracekit.render.terminal import terminal_text
from tracekit.report.report import analyze

# ---- ranks -------------------------------------------------------------------------------------------------------


def test_all_ranks(tmp_path: Path) -> None:
    actual = result(write_run(tmp_path, [gpu_rank(rank) for rank in range(4)]))
    assert actual["run"]["ranks"] == [0, 1, 2, 3]
    assert (actual["run"]["world_size"], actual["run"]["missing_ranks"], actual["run"]["device"]) == (4, [], "gpu")
    assert actual["notes"] == []
    assert actual["ranks"] == [
        {
            "rank": rank,
            "steps": 3,
            "step_ns": 300_000,
            "compute_ns": 150_000,
            "comm_ns": 150_000,
            "overlapped_comm_ns": 0,
            "exposed_comm_ns": 150_000,
            "exposed_copy_ns": 0,
            "idle_ns": 0,
            "overlap_ratio": 0.0,
        }
        for rank in range(4)
    ]
    assert len(actual["steps"]) == 12
    assert {(row["kind"], row["count"], row["total_ns"], row["group"]) for row in actual["communication"]} == {
        ("all_reduce", 3, 150_000, 0)
    }
    assert [group["ranks"] for group in actual["groups"]] == ["world"]


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _not_json(path: Path) -> None:
    path.write_bytes(b"hello")


def _cut_in_the_header(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:60]))


def _no_gzip_body(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:12])


def _removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("broken", [0, 2, 3])
@pytest.mark.parametrize("damage", [_emptied, _not_json, _cut_in_the_header, _no_gzip_body, _removed])
def test_a_broken_rank_loses_no_other(tmp_path: Path, damage: Any, broken: int) -> None:
    folder = write_run(tmp_path, [gpu_rank(rank) for rank in range(4)])
    damage(folder / f"rank{broken}.json.gz")
    actual = result(folder)
    assert actual["run"]["ranks"] == [rank for rank in range(4) if rank != broken]
    assert actual["run"]["missing_ranks"] == [broken]
    kinds = {note["id"] for note in actual["notes"]}
    assert "missing-rank" in kinds
    if damage is not _removed:
        (note,) = [note for note in actual["notes"] if note["file"] == f"rank{broken}.json.gz"]
        assert note["severity"] in {"warning", "error"}
    report = terminal_text(analyze(load(folder)), width=100)
    assert "3 of 4 ranks" in report.splitlines()[1]
    assert f"missing: {broken}" in report


def test_the_complete_steps_of_a_cut_off_rank_are_used(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [gpu_rank(rank) for rank in range(2)])
    text = gzip.decompress((folder / "rank1.json.gz").read_bytes())
    (folder / "rank1.json.gz").write_bytes(gzip.compress(text[: text.index(b'"ProfilerStep#2"') + 200]))
    actual = result(folder)
    assert [row["steps"] for row in actual["ranks"]] == [3, 2]
    assert [(row["step"], row["complete"]) for row in actual["steps"] if row["rank"] == 1] == [
        (0, True),
        (1, True),
        (2, False),
    ]
    assert {note["id"]: note["events_dropped"] for note in actual["notes"]} == {
        "truncated": 1, "step-mismatch": 0, "missing-rank": 0,
    }  # fmt: skip
    assert all(
        note["text"].startswith("rank 1: rank1.json.gz: ") for note in actual["notes"] if note["id"] == "truncated"
    )


def test_no_rank_usable(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [gpu_rank(0, 1)])
    text = gzip.decompress((folder / "rank0.json.gz").read_bytes())
    (folder / "rank0.json.gz").write_bytes(gzip.compress(text[:60]))
    with pytest.raises(InputError) as caught:
        load(folder)
    assert "rank0.json.gz" in caught.value.message


def test_two_files_of_one_rank(tmp_path: Path) -> None:
    """GIVEN two files that both name rank 1, behind their events THEN one is used and the other reported."""
    for name in ("a.json", "b.json"):
        gpu_rank(1).write(tmp_path / name, tail=True)
    actual = result(tmp_path)
    assert actual["run"]["ranks"] == [1]
    assert "duplicate-rank" in {note["id"] for note in actual["notes"]}


def test_the_rank_in_the_file_takes_precedence_over_its_name(tmp_path: Path) -> None:
    gpu_rank(2).write(tmp_path / "rank0.json", tail=True)
    actual = result(tmp_path)
    assert actual["run"]["ranks"] == [2]
    assert "rank-mismatch" in {note["id"] for note in actual["notes"]}


def test_selected_ranks_are_not_missing(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [gpu_rank(rank) for rank in (0, 1, 3)])
    actual = result(folder, ranks=[1, 2])
    assert actual["run"]["ranks"] == [1]
    assert actual["run"]["selected_ranks"] == [1, 2]
    assert actual["run"]["missing_ranks"] == [2]
    with pytest.raises((InputError, UsageError)) as caught:
        load(folder, ranks=[2])
    assert "0-1,3" in caught.value.hint


def test_selected_steps(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [gpu_rank(rank, 2) for rank in range(2)])
    actual = result(folder, options=SummaryOptions(steps=StepSelection(first=1)))
    assert [row["steps"] for row in actual["ranks"]] == [2, 2]
    with pytest.raises((InputError, UsageError)) as caught:
        load(folder, options=SummaryOptions(steps=StepSelection(first=7)))
    assert "0-2" in caught.value.hint


# ---- windows of a rank -------------------------------------------------------------------------------------------


def test_windows_of_a_rank_are_added_up(tmp_path: Path) -> None:
    for first in (0, 10):
        for rank in (0, 1):
            gpu_rank(rank, 2, steps=range(first, first + 2)).write(tmp_path / f"node0_{rank}.{first}.pt.trace.json")
    actual = result(tmp_path)
    assert [(row["rank"], row["steps"], row["compute_ns"]) for row in actual["ranks"]] == [
        (0, 4, 200_000),
        (1, 4, 200_000),
    ]
    assert [row["step"] for row in actual["steps"] if row["rank"] == 0] == [0, 1, 10, 11]
    assert [row["count"] for row in actual["communication"]] == [4, 4]
    assert actual["run"]["other_runs"] == []


def test_windows_may_show_different_groups(tmp_path: Path) -> None:
    """GIVEN a second window with collectives of a group that the first one lacks THEN both are in the table."""
    for first, description in ((0, "mesh_dp"), (10, "mesh_tp")):
        trace = TraceBuilder(0, 2).step(first, first * 100, 100).kernel("k", first * 100, 5, launched_at=first * 100)
        trace.nccl("all_reduce", first * 100 + 10, 10, launched_at=first * 100 + 1, description=description)
        trace.write(tmp_path / f"node0_1.{first}.pt.trace.json")
    actual = result(tmp_path)
    names = {group["id"]: group["desc"] for group in actual["groups"]}
    assert sorted(names[row["group"]] for row in actual["communication"]) == ["mesh_dp", "mesh_tp"]


# ---- workers and layouts -----------------------------------------------------------------------------------------


def test_workers_give_the_same_bytes(tmp_path: Path) -> None:
    """Invariant 9: one process or two; gzip, several gzip members or plain; any layout."""
    texts = set()
    for number, (packing, layout, tail) in enumerate(
        [("gz", "kineto", False), ("plain", "compact", False), ("members", "pretty", True), ("plain", "crlf", True)]
    ):
        folder = tmp_path / str(number)
        for rank in range(2):
            gpu_rank(rank, 4, compute_us=50 + rank).write(
                folder / f"rank{rank}.json", layout, tail=tail, packing=packing
            )
        for jobs in (1, 2) if number == 0 else (1,):
            run = load(folder, jobs=jobs)
            texts.add(result_json(analyze(run)).replace(str(folder), "FOLDER"))
    assert len(texts) == 1
