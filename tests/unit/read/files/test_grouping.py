"""Names and notes of runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.unit.read.files.run_traces import DAY, SECOND, files, runs, trace
from tracekit.read.files.discover import discover


def test_the_names_of_runs_without_a_clock(tmp_path: Path) -> None:
    for pid in (1, 2):
        builder = trace(0, 8, pid=pid)
        builder.base_ns = 0
        builder.write(tmp_path / f"{pid}.json")
    found = discover([str(tmp_path)])
    assert sorted([found.chosen.run_id or "", *(r.run_id or "" for r in found.others)]) == [
        "unknown-start-world8",
        "unknown-start-world8-2",
    ]


def test_notes_of_an_old_run_stay_with_it(tmp_path: Path) -> None:
    for run_id, at_us in (("old", 0), ("new", 9e6)):
        TraceBuilder().step(4, at_us, 10).op("op", at_us, 5).capture(run_id=run_id).write_capture(tmp_path)
    folder = tmp_path / "old" / "attempt-0"
    unfinished = TraceBuilder(1).step(4, 0, 10).op("op", 0, 5).capture(run_id="old")
    unfinished.write(folder / "step-000000004" / ".rank-000001.node0.7.tmp")
    (folder / "step-000000008").mkdir()
    (folder / "step-000000008" / ".rank-000001.node0.7.tmp").touch()
    (tmp_path / "stray.json").touch()

    found = discover([str(tmp_path)])
    assert found.chosen.run_id == "new"
    assert [note.file for note in found.notes] == ["stray.json"]
    assert sorted(note.id for note in found.others[0].notes) == ["empty", "unfinished-tmp"]

    old = discover([str(tmp_path)], run="old")
    assert sorted(note.id for note in old.notes) == ["empty", "empty", "unfinished-tmp"]


def test_folders_that_cannot_be_read_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace().write(tmp_path / "rank0.json")
    (tmp_path / "locked").mkdir()
    plain = os.scandir

    def scan_guarded(path: str) -> object:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path)

    monkeypatch.setattr(os, "scandir", scan_guarded)
    (note,) = discover([str(tmp_path)]).notes
    assert (note.id, note.file) == ("permission", "locked")
    assert note.text == "locked: the folder cannot be read (Permission denied); left out"


def test_a_file_of_unknown_world_is_no_newer_run_than_one_that_began_with_it(tmp_path: Path) -> None:
    """GIVEN two ranks, and a file that began with them and lost its world size THEN the two are taken."""
    for rank in (0, 1):
        TraceBuilder(rank, world_size=3).op("aten::add", 0, 1).write(tmp_path / f"rank{rank}.json")
    odd = TraceBuilder(1, world_size=3).op("aten::add", 0, 1)
    del odd.header["distributedInfo"]["world_size"]
    odd.write(tmp_path / "zrank1.json")
    assert list(discover([str(tmp_path)]).chosen.ranks) == [0, 1]


def test_a_file_named_after_another_rank_replaces_none_of_the_rank_itself(tmp_path: Path) -> None:
    """GIVEN two files of one window of rank 1, of which the newer one is named after rank 8."""
    trace(0, 9).write(tmp_path / "rank0.json")
    trace(1, 9).write(tmp_path / "rank1.json")
    trace(1, 9).write(tmp_path / "rank8.json")
    os.utime(tmp_path / "rank1.json", (1e9, 1e9))

    found = discover([str(tmp_path)])

    assert {rank: [file.path.name for file in windows] for rank, windows in found.chosen.ranks.items()} == {
        0: ["rank0.json"],
        1: ["rank1.json"],
    }
    assert [note.file for note in found.notes] == ["rank8.json"]


def test_of_two_files_of_a_window_that_differ_both_are_read(tmp_path: Path) -> None:
    """Decoding shows which of them has more."""
    text = trace(1).op("op", 5, 1).text()
    (tmp_path / "rank1.json").write_bytes(text)
    (tmp_path / "rank1_b.json").write_bytes(text[: text.rindex(b"{")])

    found = discover([str(tmp_path)])

    assert files(found) == {1: ["rank1.json", "rank1_b.json"]}
    assert found.notes == ()


@pytest.mark.parametrize("newer", [1, 2, 3])
@pytest.mark.parametrize("is_cut", [False, True])
def test_of_files_of_a_window_that_are_all_complete_or_all_cut_off_the_newest_is_used(
    tmp_path: Path, newer: int, is_cut: bool
) -> None:
    text = trace(1).op("op", 5, 1).text()
    for name in ("1.json", "2.json", "3.json"):
        (tmp_path / name).write_bytes(text[: text.rindex(b"{")] if is_cut else text)
        os.utime(tmp_path / name, (1e9, 1e9))
    os.utime(tmp_path / f"{newer}.json", (2e9, 2e9))

    assert files(discover([str(tmp_path)])) == {1: [f"{newer}.json"]}


def test_a_file_of_unknown_world_joins_the_job_of_its_time_and_no_later_one(tmp_path: Path) -> None:
    """GIVEN two jobs a day apart, the first of which lacks the rank of a file without a world size."""
    trace(0, 2).write(tmp_path / "a_rank0.json")
    trace(0, 2, at_us=DAY, pid=7).write(tmp_path / "b_rank0.json")
    trace(1, 2, at_us=DAY, pid=8).write(tmp_path / "b_rank1.json")
    unsized = trace(1, 2, at_us=SECOND)
    del unsized.header["distributedInfo"]["world_size"]
    unsized.write(tmp_path / "a_rank1.json")

    assert runs(discover([str(tmp_path)])) == [{0: 1, 1: 1}, {0: 1, 1: 1}]
