"""Where files that save time later lie: the folder of the cache, and that of traces that one command decoded.

    <folder of a trace>/.tracekit-cache/    beside a trace of a run folder that the probe made
    ~/.cache/torch-tracekit/                of all other traces that this user has read
        <slot>-<key>.summary                one entry; replaced as a whole, never changed
        .<slot>-<key>.<...>.tmp             an entry that is being written

`<slot>` stands for the names of the entry's files, `<key>` for everything that its content depends on. The functions
here say where a cache is and whether it can be trusted, create it, and remove entries from it.

A `DecodedSpool` is a temporary folder of decoded traces, so that a later phase of the same command need not decode them
again. It is not a cache. It belongs to one command: its own processes write the files, read each once, and delete the
folder in the end. So the files can be pickles: nobody else can put one there.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import re
import stat
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.read.files.storage import TracePath

CACHE_FOLDER = ".tracekit-cache"

_MAX_ENTRIES_PER_SLOT = 4
_MAX_BYTES = 1 << 30
_MAX_UNUSED_S = 90 * 86_400
_ABANDONED_S = 3600  # a temporary file this old belongs to a process that was killed
_ENTRY = re.compile(r"([0-9a-f]{16})-[0-9a-f]{32}\.summary")
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}-[0-9a-f]{32}\.summary\.[0-9a-f]{16}\.tmp")
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by tracekit: can be deleted; see https://bford.info/cachedir/\n"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CacheSize:
    """What lies in a cache folder."""

    entries: int
    size_bytes: int


def user_cache_dir() -> Path | None:
    """Return the cache folder of this user, as the XDG Base Directory Specification places it; None without a home."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the specification: a relative path is ignored
        try:
            base = Path.home() / ".cache"
        except RuntimeError:
            return None
    return base / "torch-tracekit"


def is_private_to(owners: Collection[int], status: os.stat_result) -> bool:
    """Return whether one of these users owns a file or folder, and nobody else can write to it."""
    return status.st_uid in owners and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def is_trusted_dir(folder: Path, owners: Collection[int]) -> bool:
    """Return whether this is a cache folder, and no link to one, into which only these users can write."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and is_private_to(owners, status)


def ensure_cache_dir(folder: Path) -> bool:
    """Make the cache folder if it is missing, with its parents. Return whether it is there and this user's alone.

    Beside a trace it is as readable as the umask allows; in a folder of the user's only the user can read it.
    """
    is_beside_traces = folder.name == CACHE_FOLDER
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir(mode=0o755 if is_beside_traces else 0o700)
        except FileExistsError:
            return _make_private(folder)
        (folder / ".gitignore").write_text("*\n")
        (folder / "CACHEDIR.TAG").write_text(_TAG)
    except OSError as error:
        _log.debug("no cache in %s: %s", folder, error)
        return False
    return True


def _make_private(folder: Path) -> bool:
    """Return whether a folder is this user's. If it is, take from others the right to write: older versions gave it."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return False
    if not is_private_to({os.geteuid()}, status):
        folder.chmod(stat.S_IMODE(status.st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))
    return True


def prune_cache_dir(folder: Path) -> None:
    """Remove what killed processes left behind, and the entries beyond the limits, least recently used first."""
    now = time.time()
    entries: list[tuple[float, int, str, Path]] = []
    try:
        for path, status in _files_of(folder):
            if match := _ENTRY.fullmatch(path.name):
                entries.append((status.st_mtime, status.st_size, match[1], path))
            elif status.st_mtime < now - _ABANDONED_S:
                path.unlink(missing_ok=True)
        in_slot: Counter[str] = Counter()
        total_bytes = 0
        for used_s, size, slot, path in sorted(entries, reverse=True):
            in_slot[slot] += 1
            total_bytes += size
            if in_slot[slot] > _MAX_ENTRIES_PER_SLOT or total_bytes > _MAX_BYTES or used_s < now - _MAX_UNUSED_S:
                path.unlink(missing_ok=True)
    except OSError as error:
        _log.debug("%s cannot be pruned: %s", folder, error)


def size_of_cache_dir(folder: Path) -> CacheSize:
    """Return what a cache folder holds; nothing where there is none. Raises OSError where it cannot be read."""
    sizes = [status.st_size for _, status in _files_of(folder)]
    return CacheSize(entries=len(sizes), size_bytes=sum(sizes))


def empty_cache_dir(folder: Path) -> CacheSize:
    """Remove all entries of a cache folder, and return what was removed.

    The folder is removed too, unless it holds files that are not the cache's. A link to a folder is left as it is.
    Raises OSError where something cannot be removed.
    """
    sizes = []
    for path, status in _files_of(folder):
        path.unlink(missing_ok=True)
        sizes.append(status.st_size)
    if _is_real_dir(folder) and {path.name for path in folder.iterdir()} <= {".gitignore", "CACHEDIR.TAG"}:
        for path in folder.iterdir():
            path.unlink(missing_ok=True)
        folder.rmdir()
    return CacheSize(entries=len(sizes), size_bytes=sum(sizes))


def _files_of(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the entries of a cache folder, and those that are being written.

    Nothing where there is no folder, or a link to one. Raises OSError where it cannot be read.
    """
    if not _is_real_dir(folder):
        return
    with os.scandir(folder) as listing:
        for item in listing:
            if item.is_file(follow_symlinks=False) and (_ENTRY.fullmatch(item.name) or _TEMPORARY.fullmatch(item.name)):
                yield Path(item.path), item.stat(follow_symlinks=False)


def _is_real_dir(folder: Path) -> bool:
    """Return whether this is a folder, and no link to one."""
    return folder.is_dir() and not folder.is_symlink()


@dataclass(frozen=True, kw_only=True)
class DecodedSpool:
    """One file a trace in `folder`, which exists."""

    folder: Path

    def put(self, path: TracePath, decoded: object) -> None:
        """Write what was made of the trace at `path`. Without room on the disk nothing is written."""
        file = self._file_of(path)
        try:
            with file.open("wb") as stream:
                # Since protocol 5 arrays are written from their memory and read into it, without a copy in between.
                pickle.dump(decoded, stream, protocol=5)
        except OSError:
            file.unlink(missing_ok=True)

    def pop(self, path: TracePath) -> Any:
        """Return what was put there for `path`, and delete the file. None where there is none."""
        file = self._file_of(path)
        try:
            with file.open("rb") as stream:
                return pickle.load(stream)  # noqa: S301 (only this command's processes write there)
        except FileNotFoundError:
            return None
        finally:
            file.unlink(missing_ok=True)

    def _file_of(self, path: TracePath) -> Path:
        return self.folder / hashlib.sha256(str(path).encode("utf-8", "surrogatepass")).hexdigest()
