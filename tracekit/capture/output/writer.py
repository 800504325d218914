"""Turns torch's export into a complete trace file and its manifest, or leaves no file at all.

The files are `rank-<r>.json.gz` and `rank-<r>.manifest.json` in the window's folder. The export is verified, and
unescaped annotation names are repaired. The metadata is inserted at the front. The trace is compressed beside its
target, flushed to the disk and renamed; then the manifest is written. If anything fails, no file of this process stays.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from tracekit.capture.output.disk import DiskBudget
from tracekit.errors import OutputError
from tracekit.model.metadata import METADATA_KEY, METADATA_VERSION, CaptureMetadata, Manifest, RecordingNote

MAX_EXPORT_BYTES = 2 * 2**30
GZIP_LEVEL = 6  # traces are a seventh larger than with level 9, and take a quarter of the time
MAX_RUN_ID_LENGTH = 64
TRACE_SUFFIX = ".json.gz"
MANIFEST_SUFFIX = ".manifest.json"
RANKS_A_FOLDER = 1000
MAX_RANKS_IN_ONE_FOLDER = 4096

# Kineto writes annotation names without escapes; the name has its own line, or in older versions precedes the pid.
_EVENT_NAME = re.compile(rb'^((?:    |.*, )"name": ")(.*?)(",|", "pid": .*)$', re.MULTILINE)
_TRACE_NAME = re.compile(rb'"traceName": "[^"]*"')
_TAIL_BYTES = 8192
_EVENT_BOUNDARY = re.compile(rb"\n  \},\n  \{")

__all__ = ["repair", "trace_folder", "unused_run_id", "write_trace"]


class _Trace(msgspec.Struct):
    """A trace whose events are not decoded: enough to check the syntax of all of it."""

    traceEvents: list[msgspec.Raw]  # noqa: N815


def trace_folder(root: Path, run_id: str, attempt: int, first_step: int, rank: int, world_size: int) -> Path:
    """Return `<root>/<run_id>/attempt-<n>/step-<first>`; above 4096 ranks each thousand has a folder in it."""
    folder = root / run_id / f"attempt-{attempt}" / f"step-{first_step:09d}"
    if world_size > MAX_RANKS_IN_ONE_FOLDER:
        folder /= f"rank-{rank // RANKS_A_FOLDER:03d}xxx"
    return folder


def unused_run_id(root: Path, run_id: str, attempt: int, first_step: int, rank: int, world_size: int) -> str:
    """Return `run_id`, or `<run_id>-2` and so on if this rank's file exists there.

    A recording is never replaced, but launchers reuse ids, and containers number their processes alike.
    """
    candidate, number = run_id, 1
    while _is_taken(trace_folder(root, candidate, attempt, first_step, rank, world_size) / _base_name(rank)):
        number += 1
        suffix = f"-{number}"
        candidate = run_id[: MAX_RUN_ID_LENGTH - len(suffix)] + suffix
    return candidate


def write_trace(
    folder: Path,
    export: Callable[[Path], None],
    describe: Callable[[int, list[RecordingNote]], CaptureMetadata],
    rank: int,
    budget: DiskBudget | None = None,
) -> Path:
    """Write the trace and its manifest within `budget`, and return the trace's path.

    `export` writes plain Chrome JSON to a path. `describe` gets the number of events and the notes of the repair, and
    returns the metadata; it is called after the export, so that it can include its cost. Raises OutputError if the
    disk, the folder or torch's export does not allow it.
    """
    budget = budget or DiskBudget()
    base = folder / _base_name(rank)
    host = re.sub(r"[^A-Za-z0-9_-]+", "-", os.uname().nodename)[:64]
    raw_file = folder / f".{base.name}.{host}.{os.getpid()}.tmp"
    packed_file = raw_file.with_suffix(".gz.tmp")
    temporary_files = f".{base.name}.{host}.{os.getpid()}.*"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove(folder, temporary_files)  # of a killed process with the same pid, which is common in containers
        budget.check_free_space(folder)
        if _is_taken(base):
            raise FileExistsError(errno.EEXIST, "File exists", str(base))
        export(raw_file)
        text, events, notes = _read_verified(raw_file)
        metadata = describe(events, notes)
        target = base.with_suffix(TRACE_SUFFIX)
        digest, size_bytes = _pack(packed_file, _with_metadata(text, metadata, target.name))
        budget.check(size_bytes)
        budget.check_free_space(folder)
        manifest = Manifest(
            version=METADATA_VERSION,
            run_id=metadata.run_id,
            attempt=metadata.attempt,
            rank=metadata.rank,
            world_size=metadata.world_size,
            host=metadata.host,
            file=target.name,
            bytes=size_bytes,
            sha256=digest,
            events=events,
            # A server of remote calls has no steps; there the number of the window distinguishes recordings.
            steps=(metadata.steps[0].step, metadata.steps[-1].step)
            if metadata.steps
            else (metadata.window.index, metadata.window.index),
        )
        manifest_file = raw_file.with_suffix(".manifest.tmp")
        with _synced_file(manifest_file) as stream:
            stream.write(msgspec.json.encode(manifest) + b"\n")
        _publish(packed_file, target)
        try:
            _publish(manifest_file, base.with_suffix(MANIFEST_SUFFIX))
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        budget.count_written(size_bytes)
    except (OSError, RuntimeError) as error:
        raise OutputError(f"the trace could not be written to {folder}: {error}", hint="see the path option") from error
    finally:
        _remove(folder, temporary_files)
    return target


def repair(text: bytes) -> tuple[bytes, int, int]:
    """Make torch's export valid JSON: escape annotation names, drop the events that still cannot be read.

    Return the text, the number of escaped names and the number of dropped events.
    """
    escaped = 0

    def escape(match: re.Match[bytes]) -> bytes:
        nonlocal escaped
        name = match[2]
        if _is_valid(b'"' + name + b'"'):
            return match[0]
        escaped += 1
        return match[1] + msgspec.json.encode(name.decode("utf-8", "replace"))[1:-1] + match[3]

    text = _EVENT_NAME.sub(escape, text)
    if _count_events(text) is not None:
        return text, escaped, 0
    head, separator, rest = text.partition(b'"traceEvents": [')
    body, closing, tail = rest.rpartition(b"\n  }")
    begin, opening, body = body.partition(b"\n  {")
    events = _EVENT_BOUNDARY.split(body)
    valid = [event for event in events if _is_valid(b"{" + event + b"}")]
    return (
        head + separator + begin + opening + b"\n  },\n  {".join(valid) + closing + tail,
        escaped,
        len(events) - len(valid),
    )


def _read_verified(file: Path) -> tuple[bytes, int, list[RecordingNote]]:
    """Return the export's text, its number of events and notes of repairs. Raises OutputError if it is no trace."""
    size_bytes = file.stat().st_size if file.exists() else 0
    if size_bytes == 0:
        raise OutputError(f"torch wrote no trace to {file.parent}", hint="is the disk full, the folder writable?")
    if size_bytes > MAX_EXPORT_BYTES:
        raise OutputError(
            f"the trace is {size_bytes >> 20} MiB, more than the {MAX_EXPORT_BYTES >> 20} MiB that are kept",
            hint="record fewer steps, or leave out stack and memory",
        )
    text = file.read_bytes()
    file.unlink()  # at most one uncompressed copy at a time, in memory or on the disk
    events = _count_events(text)
    if events is not None:
        return text, events, []
    text, escaped, dropped = repair(text)
    events = _count_events(text)
    if events is None:
        raise OutputError("torch's trace is not valid JSON and could not be repaired", hint="is the disk full?")
    summary = f"{escaped} annotation names were escaped, {dropped} events dropped as unreadable"
    return text, events, [RecordingNote(kind="capture", text=summary)]


def _base_name(rank: int) -> str:
    return f"rank-{rank:06d}"


def _is_taken(base: Path) -> bool:
    return any(os.path.lexists(base.with_suffix(suffix)) for suffix in (TRACE_SUFFIX, MANIFEST_SUFFIX))


def _publish(file: Path, target: Path) -> None:
    """Rename a finished file, unless the target exists: `replace` would overwrite it silently."""
    try:
        os.link(file, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "File exists", str(target)) from None
        file.replace(target)
    else:
        file.unlink()


def _remove(folder: Path, pattern: str) -> None:
    with contextlib.suppress(OSError):
        for file in folder.glob(pattern):
            file.unlink(missing_ok=True)


def _count_events(text: bytes) -> int | None:
    """Return the number of events, or None if the text is not valid JSON with a list of events."""
    try:
        return len(msgspec.json.decode(text, type=_Trace).traceEvents) if _is_utf8(text) else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_valid(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _with_metadata(text: bytes, metadata: CaptureMetadata, file_name: str) -> list[bytes | memoryview]:
    """Return the trace with the metadata inserted, in parts.

    torch drops metadata that is added after the recording. Inserted as text, it needs no decoding of the events.
    """
    begin, end = text.index(b"{") + 1, len(text)
    tail = text[-_TAIL_BYTES:]
    if (trace_name := _TRACE_NAME.search(tail)) is not None:  # torch wrote the name of the temporary file
        end -= len(tail) - trace_name.start()
        tail = _TRACE_NAME.sub(b'"traceName": ' + msgspec.json.encode(file_name), tail)
        tail = tail[trace_name.start() :]
    else:
        tail = b""
    events = memoryview(text)[begin:end]
    return [
        text[:begin],
        b"\n  ",
        msgspec.json.encode(METADATA_KEY),
        b": ",
        msgspec.json.encode(metadata),
        b",",
        events,
        tail,
    ]


def _pack(file: Path, parts: list[bytes | memoryview]) -> tuple[str, int]:
    """Write `parts` gzip-compressed and flushed to the disk; return SHA-256 and size of the file."""
    with _synced_file(file) as stream, gzip.GzipFile("", "wb", GZIP_LEVEL, stream, mtime=0) as packed:
        for part in parts:
            packed.write(part)
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest(), file.stat().st_size


@contextlib.contextmanager
def _synced_file(file: Path) -> Iterator[BinaryIO]:
    """Open a new file that is flushed to the disk when the block ends."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(descriptor, "wb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
