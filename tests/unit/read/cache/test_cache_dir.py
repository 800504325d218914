"""The folder of a cache: who can write there, and what is removed from it."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.read.cache.entries import entry_of, fetched, files_in, stored
from tracekit.read.cache import cache_dir
from tracekit.read.cache.cache_dir import (
    CACHE_FOLDER,
    empty_cache_dir,
    is_trusted_dir,
)
from tracekit.read.cache.store import Cache, store
from tracekit.read.files.discover import discover

# ---- making it, and trust --------------------------------------------------------------------------------------------


def test_version_control_and_backups_leave_the_folder_out(trace: Path) -> None:
    folder = stored(trace).path.parent
    assert folder == trace.parent / CACHE_FOLDER
    assert (folder / ".gitignore").read_text() == "*\n"
    assert (folder / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")


def test_discovery_skips_the_folder(trace: Path) -> None:
    folder = stored(trace).path.parent
    trace.write_text('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}')
    (folder / "rank1.json").write_bytes(trace.read_bytes())
    assert set(discover([str(trace.parent)]).chosen.ranks) == {0}


def test_a_full_disk_leaves_no_file(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = entry_of(trace)
    assert Cache().prepare(entry)

    def raise_full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", raise_full)
    store(entry, b"result")
    assert files_in(entry.path.parent) == set()


@pytest.mark.parametrize(("mode", "is_trusted"), [(0o755, True), (0o700, True), (0o775, False), (0o777, False)])
def test_a_folder_is_trusted_if_nobody_else_can_write_there(trace: Path, mode: int, is_trusted: bool) -> None:
    folder = stored(trace).path.parent
    folder.chmod(mode)
    assert (fetched(trace) is not None) == is_trusted


def test_a_folder_of_an_older_version_is_taken_from_its_group(trace: Path) -> None:
    entry = stored(trace)
    entry.path.parent.chmod(0o775)
    assert Cache().prepare(entry)
    assert entry.path.parent.stat().st_mode & 0o777 == 0o755
    assert fetched(trace) is not None


def test_a_folder_of_another_user_is_read_if_the_traces_are_theirs_too(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = stored(trace)
    owner = trace.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert fetched(trace) is not None
    assert not Cache().prepare(entry)
    assert not is_trusted_dir(entry.path.parent, {owner + 1})


def test_files_are_the_users_alone_to_write_with_any_umask(trace: Path) -> None:
    before = os.umask(0)
    try:
        entry = stored(trace)
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (entry.path.parent, entry.path)] == [0o755, 0o644]


def test_a_link_instead_of_the_folder_is_not_trusted(trace: Path) -> None:
    entry = stored(trace)
    entry.path.parent.rename(trace.parent / "elsewhere")
    entry.path.parent.symlink_to(trace.parent / "elsewhere")
    assert fetched(trace) is None
    assert not Cache().prepare(entry)


# ---- limits --------------------------------------------------------------------------------------------------------


def set_last_use(path: Path, days_ago: float) -> None:
    then = time.time() - days_ago * 86_400
    os.utime(path, (then, then))


def names_after_pruning(trace: Path) -> set[str]:
    cache = Cache()
    entry = entry_of(trace)
    assert cache.prepare(entry)
    cache.prune()
    return files_in(entry.path.parent)


def test_the_four_entries_of_a_rank_used_last_stay(trace: Path) -> None:
    entries = [stored(trace, number) for number in range(6)]
    for number, entry in enumerate(entries):
        set_last_use(entry.path, days_ago=10 - number)
    assert fetched(trace, 0) is not None
    assert names_after_pruning(trace) == {entries[number].path.name for number in (0, 3, 4, 5)}


def test_a_folder_stays_below_its_limit(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [stored(trace, number) for number in range(3)]
    for number, entry in enumerate(entries):
        set_last_use(entry.path, days_ago=3 - number)
    monkeypatch.setattr(cache_dir, "_MAX_BYTES", 2 * entries[0].path.stat().st_size)
    assert names_after_pruning(trace) == {entry.path.name for entry in entries[1:]}


def test_the_file_of_a_killed_process_goes_after_an_hour(trace: Path) -> None:
    entry = stored(trace)
    abandoned = entry.path.with_name(f".{entry.path.name}.{'0' * 16}.tmp")
    being_written = entry.path.with_name(f".{entry.path.name}.{'1' * 16}.tmp")
    foreign = entry.path.with_name("notes.tmp")
    for path in (abandoned, being_written, foreign):
        path.write_text("")
    set_last_use(abandoned, days_ago=0.1)
    set_last_use(foreign, days_ago=1000)
    assert names_after_pruning(trace) == {entry.path.name, being_written.name, foreign.name}


# ---- emptying it -----------------------------------------------------------------------------------------------------


def test_what_is_not_the_caches_stays(trace: Path) -> None:
    folder = stored(trace).path.parent
    (folder / "notes.txt").write_text("mine")
    empty_cache_dir(folder)
    assert files_in(folder) == {"notes.txt"}


def test_a_link_is_not_followed_to_be_emptied(trace: Path, tmp_path: Path) -> None:
    entry = stored(trace)
    (tmp_path / "link").symlink_to(entry.path.parent)
    assert empty_cache_dir(tmp_path / "link").entries == 0
    assert entry.path.exists()
