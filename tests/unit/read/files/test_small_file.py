"""Small files that a user names: what is no regular file is not waited for, and what has no end is not read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tracekit.read.files.storage import read_small_file


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_bytes(b"select 1")
    (tmp_path / "link.sql").symlink_to(tmp_path / "a.sql")
    assert read_small_file(tmp_path / "link.sql") == b"select 1"


def test_a_device_and_a_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            read_small_file(path)


def test_a_file_without_end_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as stream:
        stream.truncate(65 << 20)
    with pytest.raises(OSError, match="over 64 MiB long"):
        read_small_file(tmp_path / "large")
