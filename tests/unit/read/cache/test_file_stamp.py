"""The stamp of a trace file: another one once the file has been written again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fsspec  # noqa: F401  # its registry
import pytest

from tests.stores import FolderStore
from tracekit.read.cache.store import FileStamp, current_stamp, stamp_of
from tracekit.read.files.storage import FileVersion, RemotePath


def test_the_stamp_of_a_file_on_a_disk_is_its_status(tmp_path: Path) -> None:
    file = tmp_path / "rank0.json"
    file.write_bytes(b"12345")
    os.utime(file, ns=(0, 77))

    stamp = stamp_of(file, "rank0.json")

    status = file.stat()
    assert stamp == FileStamp(
        name="rank0.json", size_bytes=5, modified_ns=77, inode=status.st_ino, changed_ns=status.st_ctime_ns
    )


def test_content_of_equal_size_and_time_has_another_stamp(tmp_path: Path) -> None:
    """GIVEN a file that another one replaced, whose time was set back THEN the inode differs, and so does the stamp."""
    file, other = tmp_path / "rank0.json", tmp_path / "other.json"
    for path, text in ((file, "12345"), (other, "54321")):
        path.write_text(text)
        os.utime(path, ns=(0, 77))
    before = stamp_of(file, "rank0.json")

    other.replace(file)

    after = stamp_of(file, "rank0.json")
    assert (after.size_bytes, after.modified_ns) == (before.size_bytes, before.modified_ns) == (5, 77)
    assert after.inode != before.inode


def test_a_file_that_is_gone_has_no_stamp(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        stamp_of(tmp_path / "rank0.json", "rank0.json")


def test_a_listed_file_in_a_store_has_the_stamp_of_its_listing() -> None:
    version = FileVersion(size_bytes=5, changed_ns=77, tag="a1")

    stamp = stamp_of(RemotePath("s3://bucket/rank0.json", version), "rank0.json")

    assert stamp == FileStamp(name="rank0.json", size_bytes=5, modified_ns=77, tag="a1")


def test_a_store_that_gives_no_time_gives_no_stamp() -> None:
    version = FileVersion(size_bytes=5, changed_ns=None, tag="a1")

    with pytest.raises(ValueError, match="no time of its last change"):
        stamp_of(RemotePath("s3://bucket/rank0.json", version), "rank0.json")


def test_the_current_stamp_asks_the_store_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a listed file that was written again THEN only its current stamp has the new size."""
    monkeypatch.setitem(vars(sys.modules["fsspec.registry"])["_registry"], "s3", FolderStore)
    monkeypatch.setattr(FolderStore, "folder", tmp_path, raising=False)
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "rank0.json").write_bytes(b"1234567")
    listed = RemotePath("s3://bucket/rank0.json", FileVersion(size_bytes=5, changed_ns=77, tag="a1"))

    assert stamp_of(listed, "rank0.json").size_bytes == 5
    assert current_stamp(listed, "rank0.json").size_bytes == 7
