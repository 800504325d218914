"""How torch's export becomes a complete trace file and its manifest, or no file at all.

The export is verified, and annotation names, which torch does not escape, are repaired. The metadata is inserted at the
front. The trace is compressed beside its target, flushed to the disk and renamed; then the manifest is written. If
anything fails, no file of this process stays. There is at most one uncompressed copy at a time, in memory or on the
disk.

`count_events` counts the events of an export. `capture.overhead` computes the cost of recording from the counts.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tracekit.capture.output.paths import DiskBudget, RecordingPaths, publish
from tracekit.errors import OutputError
from tracekit.model.metadata import METADATA_KEY, METADATA_VERSION, CaptureMetadata, Manifest, RecordingNote
from tracekit.model.metadata.json_text import encode
from tracekit.model.spans import CALIBRATION_SPAN, LABEL_PREFIX

GZIP_LEVEL = 3  # the last one of zlib that is fast: level 6 takes twice the time for files that are a quarter smaller
MAX_EXPORT_BYTES = 2 * 2**30

# Kineto writes annotation names without escapes; the name has its own line, or in older versions precedes the pid.
_EVENT_NAME = re.compile(rb'^((?:    |.*, )"name": ")(.*?)(",|", "pid": .*)$', re.MULTILINE)
_TRACE_NAME = re.compile(rb'"traceName": "[^"]*"')
_TAIL_BYTES = 8192
_EVENT_BOUNDARY = b"\n  },\n  {"

# The tokens of JSON. torch writes their nesting itself, but takes texts from the program and numbers from a device, of
# which it may leave a quote without its escape, or write `nan`.
_TEXT = rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
_PLAIN = rb'[^"a-zA-Z]*+"[^"\\\x00-\x1f]*+"(?=[,:\]}\n])'  # nearly all: a text without escapes, and what is before it
_OTHER = rb'[^"a-zA-Z]*+(?:' + _TEXT + rb"(?=[,:\]}\s])|true|false|null|(?<=[0-9])[eE])"
_TOKENS = re.compile(rb"(?:(?:%b)*+(?:%b)?+)*+[^\"a-zA-Z]*+" % (_PLAIN, _OTHER))
_STRING = re.compile(_TEXT)
_BROKEN_NAME = re.compile(rb'"name": (?!%b(?:,\n|\s*+(?:, "[^"]++": |\})))' % _TEXT)
_EVENTS_BEGIN, _EVENTS_END = b'"traceEvents": [', b"]"
_EVENT = b'"ph": '

_PIECE_BYTES = 2**20  # other threads can go on between two of them
_OPERATIONS = (b'"cat": "cpu_op"', b'"cat": "user_annotation"')
_PYTHON_CALL = b'"cat": "python_function"'
_SPAN = b'"name": "' + LABEL_PREFIX.encode()


@dataclass(frozen=True)
class CheckedExport:
    """What is known of an export once it has been read: its number of events, the notes of repairs."""

    events: int
    notes: list[RecordingNote]
    counts: EventCounts


def export_trace(paths: RecordingPaths, export: Callable[[Path], None], budget: DiskBudget) -> None:
    """Let `export` write plain Chrome JSON to `paths.export`. Raises OutputError if disk, folder or torch refuse."""
    try:
        paths.folder.mkdir(parents=True, exist_ok=True)
        paths.remove_scratch()
        budget.check_free_space(paths.folder)
        if paths.is_taken:
            raise FileExistsError(errno.EEXIST, "File exists", str(paths.packed))
        export(paths.export)
    except BaseException as error:
        paths.remove_scratch()
        if isinstance(error, (OSError, RuntimeError)):
            raise _refusal(paths, error) from error
        raise


def write_trace(
    paths: RecordingPaths, describe: Callable[[CheckedExport], CaptureMetadata], budget: DiskBudget
) -> None:
    """Write the trace of the export at `paths`; `describe` returns its metadata. Raises OutputError."""
    try:
        text, events, notes = read_verified(paths.export)
        checked = CheckedExport(events=events, notes=notes, counts=count_events(text))
        paths.export.unlink()
        budget.count_written(_publish(paths, text, events, describe(checked), budget))
    except (OSError, RuntimeError) as error:
        raise _refusal(paths, error) from error
    finally:
        paths.remove_scratch()


def _publish(paths: RecordingPaths, text: bytes, events: int, metadata: CaptureMetadata, budget: DiskBudget) -> int:
    """Write trace and manifest; return the bytes of the trace. Raises OSError and OutputError."""
    target = paths.packed
    digest, size_bytes = _write(paths.unfinished_trace, with_metadata(text, metadata, target.name))
    budget.check(size_bytes)
    budget.check_free_space(paths.folder)
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
    with _synced_file(paths.unfinished_manifest) as stream:
        stream.write(encode(manifest) + b"\n")
    publish(paths.unfinished_trace, target)
    try:
        publish(paths.unfinished_manifest, paths.manifest)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return size_bytes


def _refusal(paths: RecordingPaths, error: Exception) -> OutputError:
    return OutputError(f"the trace could not be written to {paths.folder}: {error}", hint="see the path option")


def _write(file: Path, pieces: list[bytes | memoryview]) -> tuple[str, int]:
    """Write the pieces, compressed and flushed to the disk; return SHA-256 and size of the file."""
    with _synced_file(file) as stream, gzip.GzipFile("", "wb", GZIP_LEVEL, stream, mtime=0) as packed:
        packed.writelines(pieces)
    with file.open("rb") as written:
        return hashlib.file_digest(written, "sha256").hexdigest(), file.stat().st_size


@contextlib.contextmanager
def _synced_file(file: Path) -> Iterator[BinaryIO]:
    """Open a new file that is flushed to the disk when the block ends."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(descriptor, "wb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def read_verified(file: Path) -> tuple[bytes, int, list[RecordingNote]]:
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
    events = _count_events(text)
    if events is not None:
        return text, events, []
    text, escaped, dropped = repair(text)
    events = _count_events(text)
    if events is None:
        raise OutputError("torch's trace is not valid JSON and could not be repaired", hint="is the disk full?")
    summary = f"{escaped} annotation names were escaped, {dropped} events dropped as unreadable"
    return text, events, [RecordingNote(kind="capture", text=summary)]


def repair(text: bytes) -> tuple[bytes, int, int]:
    """Make torch's export valid JSON: escape annotation names, drop the events that still cannot be read.

    Return the text, the number of escaped names and the number of dropped events.
    """
    escaped = 0

    def escape(match: re.Match[bytes]) -> bytes:
        nonlocal escaped
        name = match[2]
        if _STRING.fullmatch(b'"' + name + b'"'):
            return match[0]
        escaped += 1
        return match[1] + encode(name.decode("utf-8", "replace"))[1:-1] + match[3]

    text = _EVENT_NAME.sub(escape, text)
    if _count_events(text) is not None:
        return text, escaped, 0
    head, separator, rest = text.partition(_EVENTS_BEGIN)
    body, closing, tail = rest.rpartition(b"\n  }")
    begin, opening, body = body.partition(b"\n  {")
    events = body.split(_EVENT_BOUNDARY)
    valid = [event for event in events if _is_event(event)]
    return (
        head + separator + begin + opening + _EVENT_BOUNDARY.join(valid) + closing + tail,
        escaped,
        len(events) - len(valid),
    )


def with_metadata(text: bytes, metadata: CaptureMetadata, file_name: str) -> list[bytes | memoryview]:
    """Return the trace with the metadata inserted, in pieces.

    torch drops metadata that is added after the recording. Inserted as text, it needs no decoding of the events.
    """
    begin, end = text.index(b"{") + 1, len(text)
    tail = text[-_TAIL_BYTES:]
    if (trace_name := _TRACE_NAME.search(tail)) is not None:  # torch wrote the name of the temporary file
        end -= len(tail) - trace_name.start()
        tail = _TRACE_NAME.sub(b'"traceName": ' + encode(file_name), tail)
        tail = tail[trace_name.start() :]
    else:
        tail = b""
    events = memoryview(text)[begin:end]
    return [
        text[:begin],
        b"\n  ",
        encode(METADATA_KEY),
        b": ",
        encode(metadata),
        b",",
        events,
        tail,
    ]


def _count_events(text: bytes) -> int | None:
    """Return the number of events, or None if the text is not valid JSON with a list of events.

    `json` would take ten times as long for the events, and no other thread could run meanwhile. So msgspec checks them,
    in pieces. Without it, or if it refuses a piece, their tokens are checked, which takes three times as long.
    """
    begin = text.find(_EVENTS_BEGIN) + len(_EVENTS_BEGIN)
    end = text.rfind(_EVENTS_END, begin)
    if begin < len(_EVENTS_BEGIN) or end < 0 or not _is_utf8(text):
        return None
    try:
        json.loads(text[:begin] + text[end:])
    except (ValueError, RecursionError):
        return None
    events = _count_by_msgspec(text, begin, end)
    if events is None and _has_valid_tokens(text) and not _BROKEN_NAME.search(text):
        events = _occurrences(text, _EVENT, begin, end)
    return events


def _count_by_msgspec(text: bytes, begin: int, end: int) -> int | None:
    """Return the number of events; None without msgspec, or if they are not valid JSON."""
    try:
        import msgspec
    except ImportError:
        return None
    decoder, events = msgspec.json.Decoder(list[msgspec.Raw]), 0
    while begin < end:
        boundary = text.find(_EVENT_BOUNDARY, begin + _PIECE_BYTES, end)
        piece_end = boundary + _EVENT_BOUNDARY.index(b",") if boundary >= 0 else end
        try:
            events += len(decoder.decode(b"[%b]" % text[begin:piece_end]))
        except msgspec.DecodeError:
            return None
        begin = piece_end + 1
    return events


def _has_valid_tokens(text: bytes) -> bool:
    at, piece_end = 0, 0
    while at < len(text):
        piece_end = min(max(piece_end, at) + _PIECE_BYTES, len(text))  # a text may be longer than a piece
        match = _TOKENS.match(text, at, piece_end)
        assert match is not None  # of the empty text, if of nothing else
        if match.end() == at and piece_end == len(text):
            return False
        at = match.end()
    return True


def _is_event(event: bytes) -> bool:
    try:
        json.loads(b"{" + event + b"}")
    except (ValueError, RecursionError):
        return False
    return _has_valid_tokens(event)  # `json` takes NaN


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class EventCounts:
    """Events in the export. `calibration_operations` belong to the measurement, the others to the steps."""

    operations: int
    python_calls: int
    spans: int
    calibration_operations: int


def count_events(text: bytes) -> EventCounts:
    """Count the events of an export. Operators are in order of time, so those of the measurement follow its span."""
    end = text.find(CALIBRATION_SPAN.encode())
    steps_end = len(text) if end < 0 else end
    return EventCounts(
        operations=sum(_occurrences(text, pattern, 0, steps_end) for pattern in _OPERATIONS),
        python_calls=_occurrences(text, _PYTHON_CALL, 0, len(text)),
        spans=_occurrences(text, _SPAN, 0, steps_end),
        calibration_operations=_occurrences(text, _OPERATIONS[0], steps_end, len(text)),
    )


def _occurrences(text: bytes, pattern: bytes, begin: int, end: int) -> int:
    pieces = range(begin, end, _PIECE_BYTES)
    return sum(text.count(pattern, i, min(i + _PIECE_BYTES + len(pattern) - 1, end)) for i in pieces)
