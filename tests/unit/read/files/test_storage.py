"""Traces behind URLs: the same run as from a disk, few bytes fetched, one line when a store fails."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from tests.builders import TraceBuilder
from tests.stores import FolderStore, StoreError
from tests.trace_text import pack
from tracekit.errors import InputError, UsageError
from tracekit.read.decode.portable import decode
from tracekit.read.files.discover import Discovery, discover
from tracekit.read.files.storage import RemotePath, parse_path, version_of


def trace(rank: int, world_size: int = 3) -> TraceBuilder:
    return TraceBuilder(rank, world_size).step(0, 0, 100).op("aten::mm", 10, 50)


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[FolderStore]:
    """Serve the folder `tmp_path` as s3://."""
    monkeypatch.setitem(vars(sys.modules["fsspec.registry"])["_registry"], "s3", FolderStore)
    monkeypatch.setattr(FolderStore, "folder", tmp_path, raising=False)
    monkeypatch.setattr(FolderStore, "fetched_bytes", 0)
    return FolderStore


def upload(folder: Path, memory: fsspec.AbstractFileSystem) -> str:
    memory.put(f"{folder}/", "/run/", recursive=True)
    return "memory://run"


def contents(found: Discovery) -> object:
    """Return everything but the folders of the files."""
    ranks = {
        rank: [(file.path.name, file.run_id, file.first_step, file.unfinished) for file in windows]
        for rank, windows in found.chosen.ranks.items()
    }
    return ranks, found.chosen.run_id, len(found.others), found.notes


# ---- the same as from a disk ---------------------------------------------------------------------------------------


def test_every_packing_and_a_cut_off_file(tmp_path: Path, memory: fsspec.AbstractFileSystem) -> None:
    trace(0).write(tmp_path / "rank0.json")
    trace(1).write(tmp_path / "deep" / "rank1.json.gz")
    whole = pack(trace(2).op("aten::add", 70, 5).text(), "gz")
    (tmp_path / "rank2.json.gz").write_bytes(whole[:-40])
    (tmp_path / "notes.txt").write_text("no trace")
    (tmp_path / "broken.json").write_text("{}")
    url = upload(tmp_path, memory)
    here, there = discover([str(tmp_path)]), discover([url])
    assert contents(there) == contents(here)
    assert sorted(there.chosen.ranks) == [0, 1, 2]
    assert [note.id for note in there.notes] == ["ignored-file"]
    for rank, (file,) in there.chosen.ranks.items():
        local, remote = decode(here.chosen.ranks[rank][0].path), decode(file.path)
        assert remote.events.name.tolist() == local.events.name.tolist()
        assert (remote.notes, remote.complete) == (local.notes, local.complete)
        assert remote.complete is (rank != 2)


def test_zstd(tmp_path: Path, memory: fsspec.AbstractFileSystem) -> None:
    zstandard = pytest.importorskip("zstandard")
    memory.pipe("/run/rank0.json.zst", zstandard.compress(trace(0).text()))
    ((file,),) = discover(["memory://run"]).chosen.ranks.values()
    assert len(decode(file.path).events) == 2


def test_captures_with_their_manifests(tmp_path: Path, store: type[FolderStore]) -> None:
    """GIVEN manifests WHEN discovered THEN one trace is opened, for the time of the run, and no other."""
    for rank in range(3):
        trace(rank).capture(run_id="r1").write_capture(tmp_path / "bucket")
    here, there = discover([str(tmp_path / "bucket")]), discover(["s3://bucket"])
    assert contents(there) == contents(here)
    assert there.chosen.run_id == "r1"
    bodies = sum(path.stat().st_size for path in (tmp_path / "bucket").rglob("*.manifest.json"))
    one = max(path.stat().st_size for path in (tmp_path / "bucket").rglob("*.json.gz"))
    assert store.fetched_bytes <= bodies + one


@pytest.mark.parametrize(
    ("typed", "ranks"),
    [
        ("memory://run/rank1.json", [1]),
        ("memory://run/rank*.json", [0, 1]),
        ("memory://run/**/rank*", [0, 1, 2]),
        ("memory://ru*", [0, 1, 2]),
        ("memory://run/", [0, 1, 2]),
    ],
)
def test_a_file_a_glob_a_folder(typed: str, ranks: list[int], memory: fsspec.AbstractFileSystem) -> None:
    for rank, place in enumerate(("rank0.json", "rank1.json", "deep/rank2.json")):
        memory.pipe(f"/run/{place}", trace(rank).text())
    assert sorted(discover([typed]).chosen.ranks) == ranks


def test_a_file_url_is_the_local_file(tmp_path: Path) -> None:
    path = trace(0).write(tmp_path / "rank0.json")
    ((file,),) = discover([f"file://{tmp_path}"]).chosen.ranks.values()
    assert file.path == path


def test_local_paths_need_no_fsspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    trace(0).write(tmp_path / "rank0.json")
    ((file,),) = discover([str(tmp_path)]).chosen.ranks.values()
    assert len(decode(file.path).events) == 2


def test_a_file_named_twice_is_one(memory: fsspec.AbstractFileSystem) -> None:
    memory.pipe("/run/rank0.json", trace(0).text())
    found = discover(["memory://run", "memory://run/rank0.json"])
    assert [len(windows) for windows in found.chosen.ranks.values()] == [1]
    assert found.notes == ()


def test_an_object_that_was_added_is_seen(memory: fsspec.AbstractFileSystem) -> None:
    for rank in range(2):
        memory.pipe(f"/run/rank{rank}.json", trace(rank).text())
        assert len(discover(["memory://run"]).chosen.ranks) == rank + 1


# ---- bytes fetched -------------------------------------------------------------------------------------------------


def test_only_the_ends_of_a_large_file_are_fetched(tmp_path: Path, store: type[FolderStore]) -> None:
    """GIVEN 24 MB, rank and time behind the events WHEN discovered THEN a few MB at both ends are read."""
    large = trace(0)
    for k in range(24):
        large.op(f"op{k}" + "x" * (1 << 20), 200 + 10 * k, 1)
    path = tmp_path / "bucket" / "a.json"
    path.parent.mkdir()
    path.write_bytes(large.text(tail=True))
    found = discover(["s3://bucket/a.json"])
    assert list(found.chosen.ranks) == [0]
    assert found.chosen.world_size == 3
    assert store.fetched_bytes < 8 << 20
    ((file,),) = found.chosen.ranks.values()
    assert len(decode(file.path).events) == 26


def test_a_file_that_was_written_again_has_another_version(tmp_path: Path, store: type[FolderStore]) -> None:
    path = tmp_path / "bucket" / "rank0.json"
    trace(0).write(path)
    before = {name: version_of(parse_path(name)) for name in (str(path), "s3://bucket/rank0.json")}
    again = {name: version_of(parse_path(name)) for name in before}
    path.write_bytes(path.read_bytes() + b"\n")
    os.utime(path, ns=(10**18, 10**18))
    after = {name: version_of(parse_path(name)) for name in before}
    assert again == before
    for name, version in after.items():
        assert version.size_bytes == before[name].size_bytes + 1
        assert version.changed_ns == 10**18 != before[name].changed_ns
    assert after["s3://bucket/rank0.json"].tag != before["s3://bucket/rank0.json"].tag != ""


def test_a_url_is_not_normalised() -> None:
    path = RemotePath("s3://bucket/a//b/rank0.json")
    assert str(path) == "s3://bucket/a//b/rank0.json"
    assert (path.name, path.suffix) == ("rank0.json", ".json")
    assert str(path.with_name("rank1.json")) == "s3://bucket/a//b/rank1.json"
    assert pickle.loads(pickle.dumps(path)) == path


# ---- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["https://example.org/rank0.json", "ssh://host/run", "git://run"])
def test_other_schemes_are_not_read(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        discover([url])
    assert caught.value.message.startswith(f"{url}: no traces are read from")


@pytest.mark.parametrize(("url", "package"), [("s3://bucket/run", "s3fs"), ("gs://bucket/run", "gcsfs")])
def test_a_missing_package_is_named(url: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError) as caught:
        discover([url])
    assert caught.value.message == f"{url}: reading it needs the package {package}"
    assert caught.value.hint == f"pip install {package}"


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (StoreError("Unable to locate\ncredentials"), "Unable to locate credentials"),
        (PermissionError("Access Denied"), "not readable"),
        (OSError("Could not connect"), "Could not connect"),
        (FileNotFoundError("The specified bucket does not exist"), "no such file or folder"),
    ],
)
def test_an_error_of_a_store_is_one_line(
    failure: Exception, reason: str, store: type[FolderStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "failure", failure)
    with pytest.raises(InputError) as caught:
        discover(["s3://bucket/run"])
    assert caught.value.message == f"s3://bucket/run: {reason}"


def test_a_store_that_fails_while_reading_is_an_input_error(
    tmp_path: Path, store: type[FolderStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace(0).write(tmp_path / "bucket" / "rank0.json")
    path = RemotePath("s3://bucket/rank0.json")
    assert len(decode(path).events) == 2
    monkeypatch.setattr(store, "fails_when_read", StoreError("connection reset"))
    with pytest.raises(InputError) as caught:
        decode(path)
    assert caught.value.reason == "connection reset"


def test_a_missing_file_has_the_same_error_in_each_store(store: type[FolderStore]) -> None:
    with pytest.raises(InputError) as caught:
        decode(RemotePath("s3://bucket/rank0.json"))
    assert caught.value.reason == "no such file on the machine that reads it"
