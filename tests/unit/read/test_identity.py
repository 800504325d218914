"""Whose trace a file is, the second time without looking into it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tracekit.errors import InputError
from tracekit.read import cache as cache_module
from tracekit.read import identity
from tracekit.read.cache import CACHE_FOLDER, Cache
from tracekit.read.identity import identify
from tracekit.read.peek import peek


@pytest.fixture(autouse=True)
def _a_minute_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_now_ns", lambda: time.time_ns() + 60 * 10**9)


def written(path: Path) -> Path:
    return TraceBuilder(3, 8).step(0, 0, 100).op("aten::mm", 0, 50).write(path)


def test_the_answer_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.json.gz")
    known = peek(path)
    assert known.rank == 3
    assert identify(path, None) == known
    assert not (tmp_path / CACHE_FOLDER).exists()
    assert identify(path, Cache()) == known
    monkeypatch.setattr(identity, "peek", None)
    assert identify(path, Cache()) == known


def test_another_file_is_looked_into(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json.gz")
    identify(path, Cache())
    other = TraceBuilder(4, 8).step(0, 0, 100).op("aten::mm", 0, 50).write(tmp_path / "b.json.gz")
    other.replace(path)
    assert identify(path, Cache()).rank == 4


def test_what_a_killed_capture_left_behind_is_told_by_its_folders(tmp_path: Path) -> None:
    """They may be renamed, and the file not."""
    name = "attempt-0/step-000000010/.rank-000002.node0.77.gz.tmp"
    path = tmp_path / "first" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(written(tmp_path / "a.json.gz").read_bytes())
    identify(path, Cache(tmp_path))
    (tmp_path / "first").rename(tmp_path / "second")
    moved = tmp_path / "second" / name
    assert identify(moved, Cache(tmp_path)) == peek(moved)
    assert not (tmp_path / CACHE_FOLDER).exists()


def test_a_file_that_is_no_trace_is_looked_into_each_time(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    for _ in range(2):
        with pytest.raises(InputError):
            identify(path, Cache())
    assert not (tmp_path / CACHE_FOLDER).exists()
