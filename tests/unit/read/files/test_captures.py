"""Which run, attempt, rank and window is each file that tracekit's own capture has written?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.unit.explain.attempts.planted import PlantedAttempt, Rank
from tests.unit.read.files.run_traces import files, kinds, trace
from tracekit.errors import UsageError
from tracekit.read.files import grouping, identify
from tracekit.read.files.discover import discover


def capture(root: Path, run_id: str, *, rank: int = 0, attempt: int = 0, at_us: float = 0, step: int = 4) -> Path:
    builder = TraceBuilder(rank).step(step, at_us, 10).op("op", at_us, 5).capture(run_id=run_id, attempt=attempt)
    return builder.write_capture(root)


def test_newest_run_is_chosen_and_the_others_are_listed(tmp_path: Path) -> None:
    for rank in (0, 1):
        capture(tmp_path, "z-first", rank=rank, at_us=0)
        capture(tmp_path, "a-last", rank=rank, at_us=9e6)
        capture(tmp_path, "a-last", rank=rank, at_us=5e6, attempt=1)
    found = discover([str(tmp_path)])
    assert (found.chosen.run_id, found.chosen.attempt, sorted(found.chosen.ranks)) == ("a-last", 0, [0, 1])
    assert [(other.run_id, other.attempt, len(other.ranks)) for other in found.others] == [
        ("z-first", 0, 2),
        ("a-last", 1, 2),
    ]
    assert found.notes == ()

    chosen = discover([str(tmp_path)], run="z-first").chosen
    assert (chosen.run_id, chosen.attempt) == ("z-first", 0)
    assert discover([str(tmp_path)], attempt=1).chosen.attempt == 1
    for selection in ({"run": "x"}, {"attempt": 7}, {"run": "z-first", "attempt": 1}):
        with pytest.raises(UsageError) as caught:
            discover([str(tmp_path)], **selection)
        assert "z-first" in caught.value.hint


def test_windows_of_a_capture_are_in_the_order_of_steps(tmp_path: Path) -> None:
    for step in (10, 4, 100):
        capture(tmp_path, "run", step=step, at_us=step * 1000)
    windows = discover([str(tmp_path)]).chosen.ranks[0]
    assert [window.first_step for window in windows] == [4, 10, 100]


def test_progress_files_are_no_traces_and_those_of_the_chosen_run_are_read(tmp_path: Path) -> None:
    """GIVEN a run whose first attempt left only progress, one file of it damaged, and another run."""
    capture(tmp_path, "run-1", attempt=1, at_us=9e6)
    capture(tmp_path, "other", at_us=0)
    alone = PlantedAttempt(ranks=(Rank(calls=3), Rank(calls=3)), start_s=0.0, joined_s=1.0, first_call_s=2.0)
    for attempt in range(2):
        alone.write(tmp_path, attempt)
    (tmp_path / "run-1/attempt-0/rank-000001.progress").write_bytes(b"nothing")

    found = discover([str(tmp_path)])

    assert (found.chosen.run_id, found.notes) == ("run-1", ())
    ranks = sorted((progress.header.attempt, progress.header.rank) for progress in found.progress)
    assert ranks == [(0, 0), (1, 0), (1, 1)]
    assert discover([str(tmp_path)], run="other").progress == ()


def test_an_unfinished_export_belongs_to_the_run_of_its_folder(tmp_path: Path) -> None:
    complete = capture(tmp_path, "run", rank=3, step=4)
    folder = tmp_path / "run/attempt-0/step-000000010"
    folder.mkdir(parents=True)
    unfinished = trace(3, at_us=9_000_000).write(folder / ".rank-000003.host.4711.tmp")

    found = discover([str(tmp_path)])

    assert (found.chosen.run_id, found.others) == ("run", ())
    assert files(found) == {3: [complete.name, unfinished.name]}
    assert [window.first_step for window in found.chosen.ranks[3]] == [4, 10]
    assert kinds(found) == ["unfinished-tmp"]


def test_manifests_are_believed_only_about_traces_that_are_there(tmp_path: Path) -> None:
    path = capture(tmp_path, "run")
    capture(tmp_path, "run", rank=1).unlink()
    for name, content in (("a", b"{"), ("b", b"\xff\xfe"), ("c", b"[" * 100_000), ("d", b'{"version": 1}'), ("e", b"")):
        (path.parent / f"{name}.manifest.json").write_bytes(content)
    found = discover([str(tmp_path)])
    assert files(found) == {0: [path.name]}
    assert found.notes == ()


def test_an_emptied_file_with_a_manifest_costs_only_its_rank(tmp_path: Path) -> None:
    capture(tmp_path, "run", rank=0).write_bytes(b"")
    good = capture(tmp_path, "run", rank=1)
    found = discover([str(tmp_path)])
    assert found.chosen.ranks[1][0].path == good
    assert found.chosen.start_ns is not None


def test_without_its_manifest_a_capture_is_found_by_its_metadata(tmp_path: Path) -> None:
    path = capture(tmp_path, "run", rank=1)
    path.with_name("rank-000001.manifest.json").unlink()
    found = discover([str(tmp_path)])
    assert (found.chosen.run_id, list(found.chosen.ranks)) == ("run", [1])


def test_metadata_larger_than_the_first_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = capture(tmp_path, "run", rank=1)
    path.with_name("rank-000001.manifest.json").unlink()
    monkeypatch.setattr(identify, "_USUAL_FIRST_EVENTS_BYTES", 100)
    monkeypatch.setattr(identify, "_FIRST_EVENTS_BYTES", 100)
    found = discover([str(tmp_path)])
    assert (found.chosen.run_id, list(found.chosen.ranks)) == ("run", [1])


def test_an_unfinished_export_is_used_if_there_is_no_other_file(tmp_path: Path) -> None:
    path = capture(tmp_path, "run")
    unfinished = path.rename(path.with_name(".rank-000000.node0.4711.tmp"))
    path.with_name("rank-000000.manifest.json").unlink()
    found = discover([str(tmp_path)])
    assert files(found) == {0: [unfinished.name]}
    assert kinds(found) == ["unfinished-tmp"]

    shutil.copy(unfinished, path)
    found = discover([str(tmp_path)])
    assert files(found) == {0: [path.name]}
    assert kinds(found) == ["unfinished-tmp"]
    assert found.notes[0].severity == "info"


def test_nothing_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN manifests WHEN discovered THEN one file is opened, for the time of the run."""
    for rank in range(8):
        capture(tmp_path, "run", rank=rank)
    opened = []
    plain = grouping.identify
    monkeypatch.setattr(grouping, "identify", lambda path: (opened.append(path), plain(path))[1])
    assert len(discover([str(tmp_path)]).chosen.ranks) == 8
    assert len(opened) == 1
