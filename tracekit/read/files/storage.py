"""How files are read wherever they are: on a disk, as `Path`, or in a store, as `RemotePath`.

A `RemotePath` is a URL that fsspec opens. fsspec is imported only for URLs. Files that a user names beside a run, such
as a file of SQL, are small regular files, which `read_small_file` reads.
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

# The package that fsspec needs for a scheme; empty where fsspec needs none.
_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), "adlfs"),
    "hdfs": "pyarrow",
    "memory": "",
}
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_MAX_REASON = 200  # characters; some libraries list everything they tried
_READ_AHEAD_BYTES = 1 << 20  # small, since often only the two ends of a file are read
# Names that stores give to the time of the last change, and to a tag that changes with the content.
_CHANGED = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
_TAGS = ("ETag", "etag", "md5Hash")

_MOST_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class FileVersion:
    """What differs once a file has been written again.

    Attributes:
        size_bytes: Of the file as it is stored.
        changed_ns: When it was last written; None if its store does not say.
        tag: What a store calls this content; empty on a disk.
    """

    size_bytes: int
    changed_ns: int | None
    tag: str = ""


@dataclass(frozen=True)
class RemotePath:
    """A URL of a file, a folder or a glob, with those methods of `Path` that readers of traces use.

    Attributes:
        url: The URL.
        version: Of the file when it was listed; None if it was not.
    """

    url: str
    version: FileVersion | None = field(default=None, compare=False)

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
        """For comparisons only: it cannot be opened."""
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
        """Open a stream that fetches ranges of the file when they are read. Raises OSError, as `Path.open` does."""
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
    """Return the file, folder or glob that was typed. Raises UsageError for a URL of an unknown scheme."""
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
    """Return the version of a file; for a listed one in a store, as it was then. Raises OSError if it is not there."""
    if isinstance(path, Path):
        status = path.stat()
        return FileVersion(size_bytes=status.st_size, changed_ns=status.st_mtime_ns)
    if path.version is not None:
        return path.version
    with _as_os_errors():
        system, stored_path = _file_system(path.url)
        return _version(system.info(stored_path))


def _version(info: Mapping[str, Any]) -> FileVersion:
    changed = next((info[key] for key in _CHANGED if info.get(key) is not None), None)
    if isinstance(changed, str):
        changed = datetime.fromisoformat(changed)
    if isinstance(changed, datetime):
        changed = changed.timestamp()
    return FileVersion(
        size_bytes=int(info.get("size") or 0),
        changed_ns=None if changed is None else round(changed * 1e9),
        tag=next((str(info[key]) for key in _TAGS if info.get(key)), ""),
    )


def find_remote(typed: RemotePath) -> list[RemotePath]:
    """Return the file itself, all files below a folder, or those that a glob matches and all below its matches.

    Empty if there is nothing. Raises InputError when the store cannot be asked.
    """
    hint = "check the URL, and the credentials that this shell has"
    try:
        with _as_os_errors():
            system, stored_path = _file_system(typed.url)
            system.invalidate_cache()  # a job may have written more since this process last looked
            is_glob = any(sign in stored_path for sign in "*?[")
            matches = system.glob(stored_path, detail=True) if is_glob else {stored_path: system.info(stored_path)}
            files: dict[str, Mapping[str, Any]] = {}
            for match, info in matches.items():
                files |= {match: info} if info["type"] == "file" else system.find(match, detail=True)
    except FileNotFoundError:
        return []
    except PermissionError:
        reason = "not readable"
        raise InputError(f"{typed}: {reason}", hint=hint, reason=reason, kind="permission") from None
    except OSError as error:
        raise InputError(f"{typed}: {_one_line(error)}", hint=hint, reason=_one_line(error)) from None
    whole = typed.url.rstrip("/")
    store = whole.removesuffix(stored_path) if whole.endswith(stored_path) else None
    return [
        RemotePath(system.unstrip_protocol(path) if store is None else store + path, _version(files[path]))
        for path in sorted(files)
    ]


def _file_system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path in it. Raises InputError if its package is not installed."""
    from fsspec.core import url_to_fs

    try:
        return cast("tuple[Any, str]", url_to_fs(url))
    except ImportError:
        package = _PACKAGES[url.partition("://")[0]]
        reason = f"reading it needs the package {package}"
        raise InputError(f"{url}: {reason}", hint=f"pip install {package}", reason=reason) from None


class _RemoteStream:
    """A stream that turns the errors of its store into those of local files."""

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
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from error  # some stores give only its name
    except (OSError, InputError):
        raise
    except Exception as error:
        raise OSError(_one_line(error)) from error


def _one_line(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    line = " ".join(text.split()) or type(error).__name__
    return line if len(line) <= _MAX_REASON else line[:_MAX_REASON] + " ..."


def read_small_file(path: Path) -> bytes:
    """Return the content of a file. Raises OSError if it cannot be read, is no regular file, or is over 64 MiB long.

    A pipe would be waited for, and a device may have no end.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with path.open("rb") as stream:
        return read_small_stream(stream, str(path))


def read_small_stream(stream: BinaryIO, name: str) -> bytes:
    """Return what is left of a stream, such as stdin. Raises OSError, with the name, if it is over 64 MiB long."""
    content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise OSError(errno.EFBIG, f"over {_MOST_BYTES >> 20} MiB long", name)
    return content
