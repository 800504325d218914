"""What lies in the folder beside the good ranks and is no usable trace."""

from __future__ import annotations

import os
from pathlib import Path


def empty_file(path: Path) -> None:
    path.touch()


def json_that_is_no_trace(path: Path) -> None:
    path.write_text('{"lr": 0.1, "layers": [{"ts": 1, "dur": 2}]}')


def trace_without_events(path: Path) -> None:
    path.write_text('{"distributedInfo": {"rank": 8, "world_size": 9}, "traceEvents": []}')


def folder_named_like_a_trace(path: Path) -> None:
    path.mkdir()
    (path / "readme.txt").write_text("no trace")


def fifo(path: Path) -> None:
    """A reader that opens it waits for a writer for ever."""
    os.mkfifo(path)


def broken_link(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere.json")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def unfinished_export(path: Path, text: bytes) -> None:
    """What a killed job leaves of an export: `rank8.json.tmp`, cut off."""
    path.with_name(f"{path.name}.tmp").write_bytes(text)
