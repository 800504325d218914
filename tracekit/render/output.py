"""Write files for the user: completely or not at all, and never over another file by accident.

What is not complete lies beside it in the folder `.<name>.tracekit-<random>.tmp`, locked while its process lives. So
the next output of that name knows what a killed process left, and removes it.

No result is worth a recording: `--force` does not replace one.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tracekit.errors import OutputError
from tracekit.model.metadata import MANIFEST_SUFFIX, MERGED_KEY, PROGRESS_SUFFIX
from tracekit.read.files.inflate import beginning_of

_BYTES_A_COPY = 1 << 30

_ZSTD = b"\x28\xb5\x2f\xfd"
# Keys of Kineto's files. In the text of a result the quotes in front of them would be escaped.
_KEY = re.compile(rb'(?<!\\)"(?:traceEvents|schemaVersion|deviceProperties|distributedInfo|ph)"\s*:')


@contextmanager
def new_file(path: Path, *, force: bool = False) -> Iterator[BinaryIO]:
    """Yield a stream whose content becomes `path` when the block ends without an exception.

    The file is not synced to the disk, because it can be made again from the run: after a power failure it may be
    empty. Raises OutputError when `path` exists and `force` is False, is a recording, a link or not a file, or
    cannot be written.
    """
    _check(path, force=force)
    with temporary_folder(path) as folder:
        temporary = folder / "new"
        try:
            with temporary.open("wb") as stream:
                yield stream
            temporary.replace(path)
        except OSError as error:
            raise OutputError(f"{path}: {error.strerror or error}", hint="check the space on the disk") from error


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise OutputError when a file is at `path`, or a folder that is not empty, and `force` is False or it is a
    recording.

    It is for before long work; what writes the file checks again.
    """
    with _as_output_error(path):
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            return
        if not force:
            raise OutputError(f"{path}: exists already", hint="choose another name, or overwrite it with --force")
        if path.is_file() and is_recording(path):
            raise OutputError(f"{path}: a recording, which is not overwritten", hint="choose another name")


def move_to_end(file: Path, stream: BinaryIO) -> None:
    """Append the content of a file to a stream and remove the file.

    Within one file system the kernel copies or shares the blocks. Raises OSError.
    """
    with file.open("rb", buffering=0) as source:
        if isinstance(stream, io.BufferedWriter) and hasattr(os, "copy_file_range"):
            stream.flush()
            with suppress(OSError):  # across file systems, or not supported: the rest is copied below
                while os.copy_file_range(source.fileno(), stream.fileno(), _BYTES_A_COPY):
                    pass
        shutil.copyfileobj(source, stream, 1 << 20)
    file.unlink()


@contextmanager
def scratch_folder(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a temporary folder beside `path`, for the parts that it is made of. Raises what `new_file` raises."""
    _check(path, force=force)
    with temporary_folder(path) as folder:
        yield folder


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside `path`, which need not exist, and remove it. Raises OutputError without permission."""
    with _as_output_error(path):
        folder, lock = _make_locked(path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@contextmanager
def new_folder(path: Path, names: Iterable[str], *, force: bool = False) -> Iterator[Path]:
    """Yield an empty folder that becomes `path` when the block ends without an exception.

    `names` are those of all files that such a folder can have. With `force`, a folder is replaced if it has no others.
    Raises OutputError when `path` exists and `force` is False, is something else, or cannot be written.
    """
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise OutputError(f"{path}: a link or not a folder", hint="choose another name")
    with _as_output_error(path):
        present = {file.name for file in path.iterdir()} if path.exists() else set()
    if foreign := sorted(present.difference(names)):
        raise OutputError(f"{path}: a folder with other files, such as {foreign[0]}", hint="choose another name")
    refuse_existing(path, force=force)
    with _as_output_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(path) as scratch, _as_output_error(path):
        new, old = scratch / "new", scratch / "old"
        new.mkdir()
        yield new
        is_replaced = path.exists()
        if is_replaced:
            path.rename(old)
        try:
            new.rename(path)
        except BaseException:
            if is_replaced:
                old.rename(path)
            raise


def _make_locked(path: Path) -> tuple[Path, int]:
    """Return a new folder beside `path`, and a descriptor that locks it until it is closed. Raises OSError.

    What killed processes left there for `path` is removed first.
    """
    prefix, suffix = f".{path.name}.tracekit-", ".tmp"
    _remove_abandoned(path.parent, re.compile(re.escape(prefix) + r"[a-z0-9_]{8}" + re.escape(suffix)))
    while True:
        temporary = Path(tempfile.mkdtemp(suffix, prefix, path.parent))
        with suppress(FileNotFoundError):  # another process took it for an abandoned one before it was locked
            descriptor = os.open(temporary, os.O_RDONLY)
            with suppress(OSError):  # a file system without locks: then nobody can lock it to remove it, either
                fcntl.flock(descriptor, fcntl.LOCK_SH)  # waits for a process that is about to remove it
            if temporary.exists():
                return temporary, descriptor
            os.close(descriptor)


def _remove_abandoned(folder: Path, name: re.Pattern[str]) -> None:
    """Remove folders of this name, of this user, that no process has locked."""
    with suppress(OSError), os.scandir(folder) as listing:
        for item in listing:
            if name.fullmatch(item.name) and item.stat(follow_symlinks=False).st_uid == os.geteuid():
                _remove_unlocked(Path(item.path))


def _remove_unlocked(temporary: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(temporary)
        finally:
            os.close(descriptor)


def _check(path: Path, *, force: bool) -> None:
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OutputError(f"{path}: a link or not a regular file", hint="choose another name")
    refuse_existing(path, force=force)
    with _as_output_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def _as_output_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}", hint="check the folder and its permissions") from error


def is_recording(path: Path) -> bool:
    """Return whether a file is a trace of torch.profiler, or what the probe writes beside one. Raises OSError."""
    if path.name.endswith((MANIFEST_SUFFIX, PROGRESS_SUFFIX)):
        return True
    try:
        beginning = beginning_of(path)
    except zlib.error:
        return False
    if beginning.startswith(_ZSTD):  # no result is packed so
        return True
    is_json = beginning.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"["))
    return is_json and _KEY.search(beginning) is not None and MERGED_KEY.encode() not in beginning
