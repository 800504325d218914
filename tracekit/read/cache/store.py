"""The side-car: what was worked out of trace files, kept in a folder beside them for the next time.

Comes in: bytes, and the files and circumstances that they were made from. Goes out: the same bytes, as long as all of
that is unchanged; anything else, damage included, is a miss. Nothing here raises because of the disk: a cache that
cannot be read or written is no cache.

    run/rank0.json.gz
    run/.tracekit-cache/<files>-<key>.summary   one a rank and way of asking; written whole, replaced, never changed
    run/.tracekit-cache/.<...>.tmp               while writing

`<files>` stands for the names of the files, `<key>` for all that the bytes depend on. Of equal `<files>` the four used
last stay; what nobody used for 90 days goes, and the oldest of more than 1 GiB.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import stat
import sys
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from tracekit.read.cache.code_version import CODE_VERSION
from tracekit.read.files.storage import RemotePath, TracePath, version_of

__all__ = ["CACHE_FOLDER", "CACHE_VARIABLE", "Cache", "CacheChoice", "Entry", "FileStamp", "chosen_cache", "keep"]

CACHE_FOLDER = ".tracekit-cache"
CACHE_VARIABLE = "TRACEKIT_CACHE"

CacheChoice = bool | str | os.PathLike[str]
"""False: no cache. A folder: in there. True: where `TRACEKIT_CACHE` says ("0": nowhere), else beside the traces."""

_FORMAT = b"tracekit cache 1\n"
_DIGEST_BYTES = 32
_LARGEST_BYTES = 256 << 20  # unpacked; a rank's summary has some hundred KB
# A file system may count time in steps of 2 s: what was changed less than that before it was read could be changed
# again afterwards without looking any different.
_RACY_NS = 2_000_000_000
_KEPT_A_FILE = 4
_KEPT_BYTES = 1 << 30
_KEPT_S = 90 * 86_400
_LEFT_BEHIND_S = 3600
_USED_S = 3600  # how exactly the time of the last use is known
_ENTRY = re.compile(r"([0-9a-f]{16})-[0-9a-f]{32}\.summary")
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}-[0-9a-f]{32}\.summary\.[0-9a-f]{16}\.tmp")
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by tracekit: can be deleted; see https://bford.info/cachedir/\n"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FileStamp:
    """What changes when a file does. No device: it differs between the hosts that mount a shared folder."""

    name: str
    size_bytes: int
    modified_ns: int
    inode: int = 0
    changed_ns: int = 0  # of the inode: cannot be set back, as `modified_ns` can
    tag: str = ""  # the mark that a store gives its content


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Where the result for these files is kept, if it is. Picklable: it travels to the worker that makes the result."""

    path: Path
    key: bytes
    files: tuple[TracePath, ...]
    stamps: tuple[FileStamp, ...]
    seen_ns: int  # when the stamps were taken


class Cache:
    """What one process sees of it while it looks at a run. `place`: the folder in which the cache's own folder is;
    None: beside the traces, in each of their folders.
    """

    def __init__(self, place: Path | None = None) -> None:
        self._place = place
        self._believed: dict[Path, bool] = {}
        self._written: set[Path] = set()

    def entry_for(self, files: Sequence[TracePath], circumstances: Sequence[object] = ()) -> Entry | None:
        """The entry for what was made of `files` by this code under `circumstances`: numbers, texts, dataclasses of
        these. None when a file cannot be looked at, or a circumstance has no bytes.
        """
        parent = self._folder_for(files[0])
        if parent is None:
            return None
        seen_ns = _now_ns()
        try:
            names = [self._name_of(file) for file in files]
            stamps = tuple(_stamp(file, name) for file, name in zip(files, names, strict=True))
            encode = msgspec.msgpack.Encoder(order="deterministic").encode
            versions = (_FORMAT, CODE_VERSION, np.__version__, msgspec.__version__, sys.byteorder)
            key = encode((versions, tuple(circumstances), stamps))
        except (OSError, TypeError, ValueError, OverflowError) as error:
            _log.debug("no cache for %s: %s", files[0], error)
            return None
        digest = hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
        slot = hashlib.blake2b(encode(names), digest_size=8).hexdigest()
        return Entry(
            path=parent / CACHE_FOLDER / f"{slot}-{digest[:16].hex()}.summary",
            key=digest,
            files=tuple(files),
            stamps=stamps,
            seen_ns=seen_ns,
        )

    def fetch(self, entry: Entry) -> bytes | None:
        """What `keep` was given for this entry; None when there is nothing that can be trusted."""
        folder = entry.path.parent
        if folder not in self._believed:
            self._believed[folder] = _may_be_believed(folder)
        return _content_of(entry) if self._believed[folder] else None

    def prepare(self, entry: Entry) -> bool:
        """Make the folder of an entry where it is missing; whether `keep` may write there."""
        folder = entry.path.parent
        if not self._believed.get(folder):
            self._believed[folder] = _make_folder(folder, with_parents=self._place is not None)
        if self._believed[folder]:
            self._written.add(folder)
        return self._believed[folder]

    def clean(self) -> None:
        """Hold the folders that were written to within their limits."""
        for folder in self._written:
            _clean(folder)
        self._written.clear()

    def _folder_for(self, file: TracePath) -> Path | None:
        """Nothing is written beside traces in a store."""
        if self._place is not None:
            return self._place
        return file.parent if isinstance(file, Path) else None

    def _name_of(self, file: TracePath) -> str:
        """Beside the traces without folder, so that one which is moved keeps its cache; in a place for all, whole."""
        if isinstance(file, RemotePath):
            return file.url
        return file.name if self._place is None else str(file.parent.resolve() / file.name)


def chosen_cache(choice: CacheChoice) -> Cache | None:
    if choice is True:
        choice = os.environ.get(CACHE_VARIABLE) or True
        if choice == "0":
            return None
    if choice is False:
        return None
    return Cache() if choice is True else Cache(Path(choice).absolute())


def keep(entry: Entry, data: bytes) -> None:
    """Keep `data`, made of the entry's files after the entry was asked for, in a folder that a `Cache` has prepared.

    Not when a file changed in the meantime, or so shortly before that another change might not show.
    """
    temporary = entry.path.with_name(f".{entry.path.name}.{secrets.token_hex(8)}.tmp")
    try:
        now = tuple(_stamp(_unlisted(file), stamp.name) for file, stamp in zip(entry.files, entry.stamps, strict=True))
        newest_ns = max(max(stamp.modified_ns, stamp.changed_ns) for stamp in now)
        if now != entry.stamps or newest_ns > entry.seen_ns - _RACY_NS or len(data) > _LARGEST_BYTES:
            _log.debug("%s is not kept: its files are changing", entry.path)
            return
        body = zlib.compress(data, 1)
        try:
            with temporary.open("xb") as stream:
                stream.write(_head(body, entry) + body)
            temporary.replace(entry.path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        _log.debug("%s cannot be written: %s", entry.path, error)


def _content_of(entry: Entry) -> bytes | None:
    try:
        # Whatever lies there: a link is not followed, a FIFO not waited for.
        descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_BYTES:
                return None
            content = stream.read()
    except OSError:
        return None
    head = len(_FORMAT) + _DIGEST_BYTES
    body = content[head:]
    if content[:head] != _head(body, entry):
        _log.debug("%s is damaged", entry.path)
        return None
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, _LARGEST_BYTES)
    except zlib.error:
        return None
    if not inflater.eof:
        return None
    if status.st_mtime < time.time() - _USED_S:
        _touch(entry.path)
    return data


def _make_folder(folder: Path, *, with_parents: bool) -> bool:
    try:
        if with_parents:
            folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.mkdir(mode=0o775)
        except FileExistsError:
            return _may_be_believed(folder)
        (folder / ".gitignore").write_text("*\n")
        (folder / "CACHEDIR.TAG").write_text(_TAG)
    except OSError as error:
        _log.debug("no cache in %s: %s", folder, error)
        return False
    return True


def _may_be_believed(folder: Path) -> bool:
    """Whether only those can write into the cache's folder who can also replace the traces beside it: in /tmp anybody
    can make a folder beside somebody else's traces.
    """
    try:
        status, around = folder.lstat(), folder.parent.stat()
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode):
        return False
    if status.st_uid == os.geteuid():
        return True
    return not around.st_mode & stat.S_ISVTX and not status.st_mode & stat.S_IWOTH


def _clean(folder: Path) -> None:
    """Remove what killed processes left behind, and beyond the limits the entries that were not used for longest."""
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
                elif _TEMPORARY.fullmatch(item.name) and status.st_mtime < now - _LEFT_BEHIND_S:
                    Path(item.path).unlink(missing_ok=True)
        kept_of: Counter[str] = Counter()
        kept_bytes = 0
        for used, size, slot, path in sorted(entries, reverse=True):
            kept_of[slot] += 1
            kept_bytes += size
            if kept_of[slot] > _KEPT_A_FILE or kept_bytes > _KEPT_BYTES or used < now - _KEPT_S:
                path.unlink(missing_ok=True)
    except OSError as error:
        _log.debug("%s cannot be cleaned: %s", folder, error)


def _head(body: bytes, entry: Entry) -> bytes:
    """Says that `body` is whole, and the answer to this very question."""
    return _FORMAT + hashlib.blake2b(body, key=entry.key, digest_size=_DIGEST_BYTES).digest()


def _stamp(file: TracePath, name: str) -> FileStamp:
    """Raises OSError when the file is not there, ValueError when its store does not say when it was written."""
    if isinstance(file, RemotePath):
        version = version_of(file)
        if version.changed_ns is None:
            raise ValueError(f"{file}: no time of its last change")
        return FileStamp(name=name, size_bytes=version.size_bytes, modified_ns=version.changed_ns, tag=version.tag)
    status = file.stat()
    return FileStamp(
        name=name,
        size_bytes=status.st_size,
        modified_ns=status.st_mtime_ns,
        inode=status.st_ino,
        changed_ns=status.st_ctime_ns,
    )


def _unlisted(file: TracePath) -> TracePath:
    """Without what was known of it when it was listed."""
    return RemotePath(file.url) if isinstance(file, RemotePath) else file


def _touch(path: Path) -> None:
    try:
        os.utime(path)
    except OSError:
        _log.debug("%s: the time of its last use is not noted", path)


def _now_ns() -> int:
    return time.time_ns()
