"""The folder of a cache: whether it can be trusted, how it is made, and what is removed from it.

    run/rank0.json.gz
    run/.tracekit-cache/<slot>-<key>.summary        one entry; replaced as a whole, never changed
    run/.tracekit-cache/.<slot>-<key>.<...>.tmp     an entry that is being written

`<slot>` stands for the names of the entry's files, `<key>` for everything that its content depends on.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections import Counter
from pathlib import Path

__all__ = ["CACHE_FOLDER", "ensure_cache_dir", "is_trusted_dir", "prune_cache_dir"]

CACHE_FOLDER = ".tracekit-cache"

_MAX_ENTRIES_PER_SLOT = 4
_MAX_BYTES = 1 << 30
_MAX_UNUSED_S = 90 * 86_400
_ABANDONED_S = 3600  # a temporary file this old belongs to a process that was killed
_ENTRY = re.compile(r"([0-9a-f]{16})-[0-9a-f]{32}\.summary")
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}-[0-9a-f]{32}\.summary\.[0-9a-f]{16}\.tmp")
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by tracekit: can be deleted; see https://bford.info/cachedir/\n"

_log = logging.getLogger(__name__)


def is_trusted_dir(folder: Path) -> bool:
    """Whether nobody can write into this cache folder who could not also replace the traces beside it.

    In /tmp, anybody can make a folder beside the traces of somebody else.
    """
    try:
        status, parent = folder.lstat(), folder.parent.stat()
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode):
        return False
    if status.st_uid == os.geteuid():
        return True
    return not parent.st_mode & stat.S_ISVTX and not status.st_mode & stat.S_IWOTH


def ensure_cache_dir(folder: Path, *, with_parents: bool) -> bool:
    """Make the cache folder if it is missing. Return whether it is there and can be trusted."""
    try:
        if with_parents:
            folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir(mode=0o775)
        except FileExistsError:
            return is_trusted_dir(folder)
        (folder / ".gitignore").write_text("*\n")
        (folder / "CACHEDIR.TAG").write_text(_TAG)
    except OSError as error:
        _log.debug("no cache in %s: %s", folder, error)
        return False
    return True


def prune_cache_dir(folder: Path) -> None:
    """Remove what killed processes left behind, and the entries beyond the limits, least recently used first."""
    now = time.time()
    entries: list[tuple[float, int, str, Path]] = []
    try:
        with os.scandir(folder) as listing:
            for item in listing:
                if not item.is_file(follow_symlinks=False):
                    continue
                status = item.stat(follow_symlinks=False)
                if match := _ENTRY.fullmatch(item.name):
                    entries.append((status.st_mtime, status.st_size, match[1], Path(item.path)))
                elif _TEMPORARY.fullmatch(item.name) and status.st_mtime < now - _ABANDONED_S:
                    Path(item.path).unlink(missing_ok=True)
        in_slot: Counter[str] = Counter()
        total_bytes = 0
        for used_s, size, slot, path in sorted(entries, reverse=True):
            in_slot[slot] += 1
            total_bytes += size
            if in_slot[slot] > _MAX_ENTRIES_PER_SLOT or total_bytes > _MAX_BYTES or used_s < now - _MAX_UNUSED_S:
                path.unlink(missing_ok=True)
    except OSError as error:
        _log.debug("%s cannot be pruned: %s", folder, error)
