"""Checks the text that torch exports, repairs what torch does not escape, and inserts the metadata."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from tracekit.errors import OutputError
from tracekit.model.metadata import METADATA_KEY, CaptureMetadata, RecordingNote

MAX_EXPORT_BYTES = 2 * 2**30

# Kineto writes annotation names without escapes; the name has its own line, or in older versions precedes the pid.
_EVENT_NAME = re.compile(rb'^((?:    |.*, )"name": ")(.*?)(",|", "pid": .*)$', re.MULTILINE)
_TRACE_NAME = re.compile(rb'"traceName": "[^"]*"')
_TAIL_BYTES = 8192
_EVENT_BOUNDARY = re.compile(rb"\n  \},\n  \{")

__all__ = ["read_verified", "repair", "with_metadata"]


class _Trace(msgspec.Struct):
    """A trace whose events are not decoded: enough to check the syntax of all of it."""

    traceEvents: list[msgspec.Raw]  # noqa: N815


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


def with_metadata(text: bytes, metadata: CaptureMetadata, file_name: str) -> list[bytes | memoryview]:
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
