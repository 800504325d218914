"""Which of several files of one window of a rank is used?"""

from __future__ import annotations

import builtins
import gzip
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.unit.read.files.run_traces import SECOND, files, trace
from tracekit.read.files.discover import discover
from tracekit.read.files.identify import identify
from tracekit.read.files.same_window import choose_file

STEPS = (3, 4, 5)


def recording(rank: int, *, steps: tuple[int, ...] = STEPS) -> TraceBuilder:
    """Three steps of ten operators each, and the last span of the profiler."""
    builder = TraceBuilder(rank, 2)
    for place, step in enumerate(steps):
        builder.step(step, 100 * place, 100)
        for operator in range(10):
            builder.op("aten::mm", 100 * place + 10 * operator, 5)
    return builder.event("PyTorch Profiler (0)", "Trace", 0, 300, pid="Spans", thread="PyTorch Profiler")


def write_with_newer(folder: Path, newer: bytes, name: str = "rank1_new.json") -> None:
    """Write two ranks, and beside rank 1 a newer file of the same window."""
    for rank in (0, 1):
        recording(rank).write(folder / f"rank{rank}.json")
        os.utime(folder / f"rank{rank}.json", (1e9, 1e9))
    (folder / name).write_bytes(newer)


def changed(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> bytes:
    document = json.loads(recording(1).text())
    return json.dumps(document | {"traceEvents": change(document["traceEvents"])}).encode()


def without_last_step(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    last = max(event["ts"] for event in events if event["name"] == "ProfilerStep#5")
    return [event for event in events if event.get("ts", 0) < last]


def without_half_of_the_operators(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    operators = [event for event in events if event["name"] == "aten::mm"]
    return [event for event in events if event not in operators[1::2]]


def without_steps_with_counters(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    counters = [{"ph": "C", "name": "Queue", "pid": 0, "ts": event["ts"], "args": {"stream 7": 1}} for event in events]
    return [event for event in events if not event["name"].startswith("ProfilerStep")] + 2 * counters


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (without_last_step, "with fewer steps"),
        (without_half_of_the_operators, "with fewer events"),
        (without_steps_with_counters, "with fewer steps"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_the_file_that_has_more_is_used_although_another_one_is_newer(
    tmp_path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], why: str, packed: bool
) -> None:
    newer = changed(change)
    write_with_newer(tmp_path, gzip.compress(newer) if packed else newer, "rank1_new.json" + ".gz" * packed)

    found = discover([str(tmp_path)])

    assert files(found) == {0: ["rank0.json"], 1: ["rank1.json"]}
    (note,) = found.notes
    assert note.text == (
        f"rank 1: rank1_new.json{'.gz' * packed}: another file of the same window, {why}; rank1.json is used"
    )


def test_a_newer_file_that_has_more_is_used(tmp_path: Path) -> None:
    """GIVEN a file that was written again with counters, such as HTA adds."""
    write_with_newer(tmp_path, changed(lambda events: [*events, {"ph": "C", "name": "Queue", "pid": 0, "ts": 1}]))

    found = discover([str(tmp_path)])

    assert files(found) == {0: ["rank0.json"], 1: ["rank1_new.json"]}
    assert [note.text for note in found.notes] == [
        "rank 1: rank1.json: another file of the same window, with fewer events; rank1_new.json is used"
    ]


@pytest.mark.parametrize("by", [-3, 1, 2])
@pytest.mark.parametrize("is_old_renumbered", [False, True])
def test_of_files_that_number_the_same_steps_differently_the_one_that_agrees_with_other_ranks_is_used(
    tmp_path: Path, by: int, is_old_renumbered: bool
) -> None:
    write_with_newer(tmp_path, recording(1).text())
    odd = tmp_path / ("rank1.json" if is_old_renumbered else "rank1_new.json")
    odd.write_bytes(recording(1, steps=tuple(step + by for step in STEPS)).text())
    os.utime(odd, (1e9, 1e9) if is_old_renumbered else (2e9, 2e9))

    found = discover([str(tmp_path)])

    assert odd.name not in files(found)[1]
    (note,) = found.notes
    assert note.file == odd.name
    assert "another file of the same window, with other step numbers than the other ranks;" in note.text


def test_where_all_ranks_have_files_that_number_the_steps_differently_the_newest_are_used(tmp_path: Path) -> None:
    for rank in (0, 1):
        for name, first in (("old", 3), ("new", 4)):
            path = tmp_path / f"rank{rank}_{name}.json"
            recording(rank, steps=(first, first + 1, first + 2)).write(path)
            os.utime(path, (first * 1e9, first * 1e9))

    assert files(discover([str(tmp_path)])) == {0: ["rank0_new.json"], 1: ["rank1_new.json"]}


@pytest.mark.parametrize("merged_is_newer", [False, True])
def test_a_file_that_joins_several_recordings_does_not_replace_one_of_them(
    tmp_path: Path, merged_is_newer: bool
) -> None:
    """GIVEN a file with the events of both ranks and the header of rank 1."""
    of_other = json.loads(recording(0).text())["traceEvents"]
    write_with_newer(tmp_path, changed(lambda events: events + of_other), "merged.json")
    os.utime(tmp_path / "merged.json", (2e9, 2e9) if merged_is_newer else (0, 0))

    found = discover([str(tmp_path)])

    assert files(found) == {0: ["rank0.json"], 1: ["rank1.json"]}
    assert [note.text for note in found.notes] == [
        "rank 1: merged.json: another file of the same window, joined from several recordings; rank1.json is used"
    ]


def test_only_files_of_the_same_window_that_differ_are_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tracekit.read.files import same_window

    for rank in range(3):
        for window in range(2):
            trace(rank, 3, at_us=window * SECOND).write(tmp_path / f"rank{rank}.{window}.json")
    read: list[str] = []
    contents_of = same_window.contents_of
    monkeypatch.setattr(same_window, "contents_of", lambda path: (read.append(path.name), contents_of(path))[1])
    discover([str(tmp_path)])
    assert read == []
    trace(1, 3).write(tmp_path / "rank1.0b.json")
    discover([str(tmp_path)])
    assert read == [], "a copy"
    trace(1, 3).op("op", 5, 1).write(tmp_path / "rank1.0b.json")
    discover([str(tmp_path)])
    assert sorted(read) == ["rank1.0.json", "rank1.0b.json"]


def test_a_file_that_cannot_be_read_replaces_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN two files of one window that the probe's manifests describe, of which the newer one cannot be opened."""
    builder = trace(1).capture(run_id="run")
    paths = [tmp_path / name for name in ("rank-000001.json", "rank-000001b.json")]
    for path in paths:
        builder.write(path)
    known = [identify(path) for path in paths]
    os.utime(paths[0], (1e9, 1e9))
    plain_open = builtins.open

    def open_guarded(file: Any, *args: Any, **kwargs: Any) -> Any:
        if str(file).endswith("1b.json"):
            raise PermissionError(13, "Permission denied", str(file))
        return plain_open(file, *args, **kwargs)

    monkeypatch.setattr(builtins, "open", open_guarded)
    monkeypatch.setattr(io, "open", open_guarded)

    used, notes = choose_file(known, lambda: ())

    assert used.path == paths[0]
    assert [note.file for note in notes] == ["rank-000001b.json"]
