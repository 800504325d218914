"""Results that were computed from trace files, kept for the next command.

An entry is given back only while its files, the code and the options are the same, and only if nobody but this user or
the owner of the files can have written it. Whatever else is there, damage included, is a miss. Nothing here raises
because of the disk: a cache that cannot be read or written is no cache.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import stat
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from tracekit.read.cache.cache_dir import (
    CACHE_FOLDER,
    ensure_cache_dir,
    is_private_to,
    is_trusted_dir,
    prune_cache_dir,
    user_cache_dir,
)
from tracekit.read.files.identify import is_of_probe
from tracekit.read.files.storage import RemotePath, TracePath, version_of
from tracekit.version import __version__

CACHE_VARIABLE = "TRACEKIT_CACHE"

CacheChoice = bool | str | os.PathLike[str]
"""False: no cache. A folder: in there. True: where `TRACEKIT_CACHE` says ("0": nowhere), else as `Cache` does."""

_FORMAT = b"tracekit cache 1\n"
_DIGEST_BYTES = 32
_MAX_BYTES = 256 << 20  # unpacked; the summary of a rank has some hundred KB
# A file system may count time in steps of 2 s. A file that was changed less than that before it was read could be
# changed again afterwards and have the same stamp.
_RACY_NS = 2_000_000_000
_TOUCH_INTERVAL_S = 3600  # the time of the last use is at most this old

_log = logging.getLogger(__name__)

SUMMARY_FORMAT = 2
"""Raise it with every change of what a summary means or of how it is packed."""

# Those that compute summaries: whatever `loading` imports.
PACKAGES = ("explain", "findings", "health", "job", "loading", "model", "rank", "read", "replay", "rpc", "stats")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Where the result for some files is, or will be. Picklable: it goes to the worker that computes the result.

    Attributes:
        path: The file of the entry.
        key: Digest of everything that the result depends on.
        files: The trace files.
        stamps: Of the files, one each.
        stamped_ns: When the stamps were taken.
        owners: The users whose entry is trusted: this one, and the owner of all files, who could change those too.
    """

    path: Path
    key: bytes
    files: tuple[TracePath, ...]
    stamps: tuple[FileStamp, ...]
    stamped_ns: int
    owners: frozenset[int]


class Cache:
    """The cache of one process. `base_dir` holds the cache folder for all traces.

    None: the folder is beside a trace where the probe wrote it, and for all other traces it is the user's.
    """

    def __init__(self, base_dir: Path | None = None) -> None:
        self._base_dir = base_dir
        self._trusted: dict[tuple[Path, frozenset[int]], bool] = {}
        self._writable: dict[Path, bool] = {}
        self._written: set[Path] = set()

    def entry_for(self, files: Sequence[TracePath], parameters: Sequence[object] = ()) -> Entry | None:
        """Return the entry for what this code computes from `files` with `parameters`: numbers, texts, dataclasses.

        None when a file cannot be looked at, or a parameter cannot be packed.
        """
        folder = self._folder_for(files[0])
        if folder is None:
            return None
        is_beside = folder.name == CACHE_FOLDER and self._base_dir is None
        stamped_ns = _now_ns()
        try:
            names = [_name_of(file, is_beside=is_beside) for file in files]
            stamps = tuple(stamp_of(file, name) for file, name in zip(files, names, strict=True))
            owners = [set() if isinstance(file, RemotePath) else {file.stat().st_uid} for file in files]
            encode = msgspec.msgpack.Encoder(order="deterministic").encode
            versions = (_FORMAT, CODE_VERSION, np.__version__, msgspec.__version__, sys.byteorder)
            key = encode((versions, tuple(parameters), stamps))
        except (OSError, TypeError, ValueError, OverflowError) as error:
            _log.debug("no cache for %s: %s", files[0], error)
            return None
        digest = hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
        slot = hashlib.blake2b(encode(names), digest_size=8).hexdigest()
        return Entry(
            path=folder / f"{slot}-{digest[:16].hex()}.summary",
            key=digest,
            files=tuple(files),
            stamps=stamps,
            stamped_ns=stamped_ns,
            owners=frozenset({os.geteuid()} | set.intersection(*owners)),
        )

    def fetch(self, entry: Entry) -> bytes | None:
        """Return what was stored for this entry; None when there is nothing that can be trusted."""
        folder_owners = entry.path.parent, entry.owners
        if folder_owners not in self._trusted:
            self._trusted[folder_owners] = is_trusted_dir(*folder_owners)
        return _read(entry) if self._trusted[folder_owners] else None

    def prepare(self, entry: Entry) -> bool:
        """Make the folder of an entry if it is missing. Return whether `store` may write there."""
        folder = entry.path.parent
        if folder not in self._writable:
            self._writable[folder] = ensure_cache_dir(folder)
            self._trusted.pop((folder, entry.owners), None)
        if self._writable[folder]:
            self._written.add(folder)
        return self._writable[folder]

    def prune(self) -> None:
        """Remove old entries from the folders that were written to."""
        for folder in self._written:
            prune_cache_dir(folder)
        self._written.clear()

    def _folder_for(self, file: TracePath) -> Path | None:
        """Return the cache folder for `file`; None if none can be there."""
        if self._base_dir is not None:
            return self._base_dir / CACHE_FOLDER
        if isinstance(file, Path) and is_of_probe(file):
            beside = file.parent / CACHE_FOLDER
            if beside.is_dir() or os.access(file.parent, os.W_OK):
                return beside
        return user_cache_dir()


def _name_of(file: TracePath, *, is_beside: bool) -> str:
    """Return the name of a file in its key.

    Without its folder where the cache is beside it, so that a moved folder keeps its cache.
    """
    if isinstance(file, RemotePath):
        return file.url
    return file.name if is_beside else str(file.parent.resolve() / file.name)


def chosen_cache(choice: CacheChoice) -> Cache | None:
    """Return the cache that the user chose; None for no cache."""
    if choice is True:
        choice = os.environ.get(CACHE_VARIABLE) or True
        if choice == "0":
            return None
    if choice is False:
        return None
    return Cache() if choice is True else Cache(Path(choice).absolute())


def store(entry: Entry, data: bytes) -> None:
    """Write `data` as the content of `entry`, whose folder a `Cache` has prepared.

    Not when a file has changed since the entry was made, or so shortly before that another change might not show.
    """
    temporary = entry.path.with_name(f".{entry.path.name}.{secrets.token_hex(8)}.tmp")
    try:
        now = tuple(current_stamp(file, stamp.name) for file, stamp in zip(entry.files, entry.stamps, strict=True))
        newest_ns = max(max(stamp.modified_ns, stamp.changed_ns) for stamp in now)
        if now != entry.stamps or newest_ns > entry.stamped_ns - _RACY_NS or len(data) > _MAX_BYTES:
            _log.debug("%s is not stored: its files are changing", entry.path)
            return
        body = zlib.compress(data, 1)
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)  # others must not write
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(_header(body, entry) + body)
            temporary.replace(entry.path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        _log.debug("%s cannot be written: %s", entry.path, error)


def _read(entry: Entry) -> bytes | None:
    try:
        # Whatever has this name: a link is not followed, a FIFO not waited for.
        descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
                return None
            if not is_private_to(entry.owners, status):
                return None
            content = stream.read()
    except OSError:
        return None
    header_bytes = len(_FORMAT) + _DIGEST_BYTES
    body = content[header_bytes:]
    if content[:header_bytes] != _header(body, entry):
        _log.debug("%s is damaged", entry.path)
        return None
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, _MAX_BYTES)
    except zlib.error:
        return None
    if not inflater.eof:
        return None
    if status.st_mtime < time.time() - _TOUCH_INTERVAL_S:
        _touch(entry.path)
    return data


def _header(body: bytes, entry: Entry) -> bytes:
    """Return a header that only this body for this key has."""
    return _FORMAT + hashlib.blake2b(body, key=entry.key, digest_size=_DIGEST_BYTES).digest()


def _touch(path: Path) -> None:
    """Note that the entry was used."""
    try:
        os.utime(path)
    except OSError:
        _log.debug("%s: the time of its last use is not noted", path)


def _now_ns() -> int:
    return time.time_ns()


@dataclass(frozen=True, kw_only=True)
class FileStamp:
    """The state of one file. Without its device number, which differs between hosts that mount a shared folder.

    Attributes:
        name: Of the file, as its entry was asked for.
        size_bytes: Of the file as it is stored, packed or not.
        modified_ns: Time of the last change of the content, which anybody can set back.
        inode: 0 in a store.
        changed_ns: Time of the last change of the inode, which nobody can set back; 0 in a store.
        tag: What a store calls the version of the content; empty on a disk.
    """

    name: str
    size_bytes: int
    modified_ns: int
    inode: int = 0
    changed_ns: int = 0
    tag: str = ""


def stamp_of(file: TracePath, name: str) -> FileStamp:
    """Return the stamp of `file`; for a file in a store, as it was when it was listed.

    Raises OSError when the file is not there, ValueError when its store does not say when it was written.
    """
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


def current_stamp(file: TracePath, name: str) -> FileStamp:
    """`stamp_of`, but a store is asked again."""
    return stamp_of(RemotePath(file.url) if isinstance(file, RemotePath) else file, name)


def code_version() -> str:
    """Return a digest of the release, the format, and the names and sizes of the files that compute summaries.

    Sizes notice most changes that came without a new number, and are equal on all hosts of a cluster. In a git checkout
    the times of the last changes count too: there every edit must count. Costs 1 ms; reading the files would cost ten.
    """
    package = Path(__file__).parents[2]
    is_checkout = (package.parent / ".git").exists()
    files: list[tuple[str, int, int]] = []
    for name in PACKAGES:
        with suppress(OSError):  # a package without a folder, or a file that an editor is replacing
            for entry in _files_below(package / name):
                status, path = entry.stat(), entry.path[len(str(package)) :]
                files.append((path, status.st_size, status.st_mtime_ns if is_checkout else 0))
    version = f"{__version__} {SUMMARY_FORMAT} {sorted(files)}"
    return hashlib.blake2b(version.encode(), digest_size=16).hexdigest()


def _files_below(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir():
                yield entry
            elif entry.name != "__pycache__":
                yield from _files_below(entry.path)


CODE_VERSION = code_version()
"""Which code this process runs: its files as they were when it began, as they may be edited while it runs."""
