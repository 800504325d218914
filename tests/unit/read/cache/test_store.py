"""Results kept beside the traces: given back while nothing has changed, and only then."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.read.cache.entries import entry_of, fetched, files_in, stored
from tracekit.read.cache import store as module
from tracekit.read.cache.cache_dir import CACHE_FOLDER
from tracekit.read.cache.store import Cache, CacheChoice, chosen_cache, store

# ---- hits and misses -----------------------------------------------------------------------------------------------


def test_a_stored_result_comes_back(trace: Path) -> None:
    assert fetched(trace) is None
    stored(trace)
    assert fetched(trace) == b"result " * 100


def test_other_parameters_are_another_entry(trace: Path) -> None:
    stored(trace, "portable", 0)
    assert fetched(trace, "portable", 0) is not None
    assert fetched(trace, "native", 0) is None
    assert fetched(trace, "portable", 1) is None


def test_a_parameter_that_cannot_be_packed_has_no_entry(trace: Path) -> None:
    assert Cache().entry_for([trace], [object()]) is None


def test_other_code_is_another_entry(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(trace)
    monkeypatch.setattr(module, "CODE_VERSION", "edited")
    assert fetched(trace) is None


def _change_content(trace: Path) -> None:
    before = trace.stat()
    while trace.stat().st_ctime_ns == before.st_ctime_ns:  # a tick of the file system's clock takes some milliseconds
        trace.write_text("b trace")


def _change_content_and_set_time_back(trace: Path) -> None:
    status = trace.stat()
    _change_content(trace)
    os.utime(trace, ns=(status.st_atime_ns, status.st_mtime_ns))


def _replace_by_another_file(trace: Path) -> None:
    status = trace.stat()
    other = trace.with_name("other")
    other.write_text("b trace")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(trace)


def _append(trace: Path) -> None:
    with trace.open("a") as stream:
        stream.write("!")


@pytest.mark.parametrize(
    "change", [_change_content, _change_content_and_set_time_back, _replace_by_another_file, _append]
)
@pytest.mark.parametrize("shared", [False, True])
def test_a_file_that_changed_is_a_miss(
    trace: Path, tmp_path: Path, change: Callable[[Path], None], shared: bool
) -> None:
    base_dir = tmp_path if shared else None
    stored(trace, base_dir=base_dir)
    assert fetched(trace, base_dir=base_dir) is not None
    change(trace)
    assert fetched(trace, base_dir=base_dir) is None


def test_a_file_that_changes_while_it_is_read_is_not_stored(trace: Path) -> None:
    entry = entry_of(trace)
    assert Cache().prepare(entry)
    _change_content_and_set_time_back(trace)
    store(entry, b"half of the old, half of the new")
    assert files_in(entry.path.parent) == set()


def test_a_folder_that_is_moved_keeps_its_cache(trace: Path, tmp_path: Path) -> None:
    stored(trace)
    (tmp_path / "run").rename(tmp_path / "moved")
    assert fetched(tmp_path / "moved" / trace.relative_to(tmp_path / "run")) is not None


def test_the_cache_of_a_foreign_trace_is_the_users(tmp_path: Path, user_cache: Path) -> None:
    """Nothing is written beside it: another program that lists its folder may not expect that."""
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank0.json").write_text("a trace")
        stored(tmp_path / name / "rank0.json", data=name.encode())
    assert [fetched(tmp_path / name / "rank0.json") for name in "ab"] == [b"a", b"b"]
    assert [[path.name for path in (tmp_path / name).iterdir()] for name in "ab"] == [["rank0.json"]] * 2
    assert len(files_in(user_cache)) == 2
    assert user_cache.stat().st_mode & 0o777 == 0o700


def test_the_cache_of_a_run_that_cannot_be_written_to_is_the_users(
    trace: Path, user_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert stored(trace).path.parent == user_cache
    assert fetched(trace) is not None
    assert not (trace.parent / CACHE_FOLDER).exists()


# ---- damage --------------------------------------------------------------------------------------------------------


def test_no_flipped_bit_goes_unnoticed(trace: Path) -> None:
    entry = stored(trace)
    whole = entry.path.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        entry.path.write_bytes(damaged)
        assert fetched(trace) is None
    entry.path.write_bytes(whole)
    assert fetched(trace) is not None


def test_an_entry_under_the_name_of_another_is_refused(trace: Path) -> None:
    other = stored(trace, "other")
    other.path.rename(entry_of(trace).path)
    assert fetched(trace) is None


@pytest.mark.parametrize(
    ("is_ours", "mode", "is_trusted"),
    [(True, 0o644, True), (False, 0o644, False), (True, 0o664, False), (True, 0o646, False)],
)
def test_an_entry_that_others_could_have_written_is_not_read(
    trace: Path, monkeypatch: pytest.MonkeyPatch, is_ours: bool, mode: int, is_trusted: bool
) -> None:
    entry = stored(trace)
    entry.path.chmod(mode)
    me = entry.path.stat().st_uid
    monkeypatch.setattr(module, "is_trusted_dir", lambda folder, owners: True)
    entry = replace(entry, owners=frozenset({me if is_ours else me + 1}))
    assert (Cache().fetch(entry) is not None) == is_trusted


def test_of_files_of_several_owners_only_entries_of_this_user_are_trusted(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = trace.with_name("rank1.json")
    other.write_text("a trace")
    me = trace.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    entry = Cache().entry_for([trace, other])
    assert entry is not None
    assert entry.owners == {me, me + 1}
    real = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        status = real(path, **options)
        return os.stat_result((*status[:4], me + 2, *status[5:])) if path == other else status

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(module, "stamp_of", lambda file, name: name)
    entry = Cache().entry_for([trace, other])
    assert entry is not None
    assert entry.owners == {me + 1}


def test_an_entry_that_inflates_to_too_much_is_refused(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(trace, data=bytes(10_000))
    monkeypatch.setattr(module, "_MAX_BYTES", 9_999)
    assert fetched(trace) is None


def _link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("replacement", [_link, _fifo, _folder])
def test_what_is_not_a_regular_file_is_not_read(trace: Path, replacement: Callable[[Path], None]) -> None:
    entry = stored(trace)
    replacement(entry.path)
    assert fetched(trace) is None


# ---- the choice of the user ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "variable", "folder"),
    [
        (False, "elsewhere", None),
        (True, None, "beside"),
        (True, "", "beside"),
        (True, "elsewhere", "elsewhere"),
        (True, "0", None),
        ("here", "elsewhere", "here"),
        (Path("here"), "0", "here"),
    ],
)
def test_the_chosen_folder(
    choice: CacheChoice, variable: str | None, folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRACEKIT_CACHE", raising=False)
    if variable is not None:
        monkeypatch.setenv("TRACEKIT_CACHE", variable)
    trace = Path("run", "attempt-0", "step-000000003", "rank0.json")
    trace.parent.mkdir(parents=True)
    trace.touch()
    trace.with_name("rank0.manifest.json").touch()
    cache = chosen_cache(choice)
    entry = None if cache is None else cache.entry_for([trace])
    # An absolute path: a worker may have another current folder.
    known = {None: None, "beside": trace.parent / CACHE_FOLDER}
    expected = known[folder] if folder in known else tmp_path / str(folder) / CACHE_FOLDER
    assert (None if entry is None else entry.path.parent) == expected
