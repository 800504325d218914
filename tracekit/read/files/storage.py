"""Where trace files lie: on a disk as `Path`, elsewhere as `RemotePath`, a URL that fsspec opens.

Comes in: a path or URL as text. Goes out: what readers need of a file, whichever it is: its name and place, its bytes,
and what tells it from a later file of the same name. fsspec is imported for URLs alone.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from tracekit.errors import InputError, UsageError

__all__ = ["FileVersion", "RemotePath", "TracePath", "find_remote", "parse_path", "version_of"]

# The package that fsspec needs for a scheme; none for its own.
_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), "adlfs"),
    "hdfs": "pyarrow",
    "memory": "",
}
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_LONGEST_REASON = 200  # characters; some libraries say everything they tried
_READ_AHEAD_BYTES = 1 << 20  # the ends of a file cost no more than this and what is read of them
# What stores call the time of the last change, and the mark that changes with the content.
_CHANGED = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_TAGS = ("ETag", "etag", "md5Hash")


@dataclass(frozen=True, kw_only=True)
class FileVersion:
    """What differs once the file has been written again. `changed_ns`: when that was last, None where it is not told;
    `tag`: the mark that a store gives its content, empty on a disk.
    """

    size_bytes: int
    changed_ns: int | None
    tag: str = ""


@dataclass(frozen=True)
class RemotePath:
    """A file behind a URL, or a folder or glob of them, with those parts of `Path` that readers of traces use."""

    url: str
    version: FileVersion | None = field(default=None, compare=False)  # when it was listed

    @property
    def _pure(self) -> PurePosixPath:
        return PurePosixPath(self.url)

    @property
    def name(self) -> str:
        return self._pure.name

    @property
    def suffix(self) -> str:
        return self._pure.suffix

    @property
    def parent(self) -> PurePosixPath:
        """For comparisons: the folders of a URL are no places to open."""
        return self._pure.parent

    @property
    def parents(self) -> tuple[PurePosixPath, ...]:
        return tuple(self._pure.parents)

    def absolute(self) -> RemotePath:
        return self

    def as_posix(self) -> str:
        return self.url

    def with_name(self, name: str) -> RemotePath:
        return RemotePath(self.url[: len(self.url) - len(self.name)] + name)

    def open(self, mode: str = "rb") -> BinaryIO:
        """A stream that fetches ranges of the file when they are read. Raises OSError, as `Path.open` does."""
        with _as_os_errors():
            system, path = _file_system(self.url)
            stream = system.open(path, mode, block_size=_READ_AHEAD_BYTES, cache_type="readahead")
        return cast(BinaryIO, _RemoteStream(stream))

    def read_bytes(self) -> bytes:
        with self.open() as stream:
            return stream.read()

    def __str__(self) -> str:
        return self.url


TracePath = Path | RemotePath


def parse_path(typed: str) -> TracePath:
    """The file, folder or glob that was typed. Raises UsageError for a URL of another scheme than those known."""
    match = _URL.fullmatch(typed)
    if match is None:
        return Path(typed)
    scheme, rest = match[1].lower(), match[2]
    if scheme in {"file", "local"}:
        return Path(rest)
    if scheme not in _PACKAGES:
        hint = "copy them to a disk, or to s3://, gs://, az:// or hdfs://"
        raise UsageError(f"{typed}: no traces are read from {scheme}://", hint=hint)
    return RemotePath(f"{scheme}://{rest}")


def version_of(path: TracePath) -> FileVersion:
    """Raises OSError when the file is not there."""
    if isinstance(path, Path):
        status = path.stat()
        return FileVersion(size_bytes=status.st_size, changed_ns=status.st_mtime_ns)
    if path.version is not None:
        return path.version
    with _as_os_errors():
        system, place = _file_system(path.url)
        return _version(system.info(place))


def _version(details: Mapping[str, Any]) -> FileVersion:
    changed = next((details[key] for key in _CHANGED if details.get(key) is not None), None)
    if isinstance(changed, str):
        changed = datetime.fromisoformat(changed)
    if isinstance(changed, datetime):
        changed = changed.timestamp()
    return FileVersion(
        size_bytes=int(details.get("size") or 0),
        changed_ns=None if changed is None else round(changed * 1e9),
        tag=next((str(details[key]) for key in _TAGS if details.get(key)), ""),
    )


def find_remote(typed: RemotePath) -> list[RemotePath]:
    """The files below a folder, those that a glob matches or that are below what it matches, or the file itself.

    Empty when there is nothing. Raises InputError when the store cannot be asked.
    """
    hint = "check the URL, and the credentials that this shell has"
    try:
        with _as_os_errors():
            system, place = _file_system(typed.url)
            system.invalidate_cache()  # a job may have written more since this process last looked
            is_glob = any(sign in place for sign in "*?[")
            matches = system.glob(place, detail=True) if is_glob else {place: system.info(place)}
            files: dict[str, Mapping[str, Any]] = {}
            for match, details in matches.items():
                files |= {match: details} if details["type"] == "file" else system.find(match, detail=True)
    except FileNotFoundError:
        return []
    except PermissionError:
        reason = "not readable"
        raise InputError(f"{typed}: {reason}", hint=hint, reason=reason, kind="permission") from None
    except OSError as error:
        raise InputError(f"{typed}: {_one_line(error)}", hint=hint, reason=_one_line(error)) from None
    whole = typed.url.rstrip("/")
    store = whole.removesuffix(place) if whole.endswith(place) else None
    return [
        RemotePath(system.unstrip_protocol(path) if store is None else store + path, _version(files[path]))
        for path in sorted(files)
    ]


def _file_system(url: str) -> tuple[Any, str]:
    """fsspec's file system of a URL, and the path in it. Raises InputError when its package is not installed."""
    from fsspec.core import url_to_fs

    try:
        return cast("tuple[Any, str]", url_to_fs(url))
    except ImportError:
        package = _PACKAGES[url.partition("://")[0]]
        reason = f"reading it needs the package {package}"
        raise InputError(f"{url}: {reason}", hint=f"pip install {package}", reason=reason) from None


class _RemoteStream:
    """A remote file whose errors are those of a local one, whatever its store raises."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        with _as_os_errors():
            return bytes(self._stream.read(size))

    def readinto(self, buffer: memoryview) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def __enter__(self) -> _RemoteStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


@contextmanager
def _as_os_errors() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from error  # stores say its name alone
    except (OSError, InputError):
        raise
    except Exception as error:
        raise OSError(_one_line(error)) from error


def _one_line(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    line = " ".join(text.split()) or type(error).__name__
    return line if len(line) <= _LONGEST_REASON else line[:_LONGEST_REASON] + " ..."
