"""The text of a trace around its events: what stands before them, and where they begin.

Comes in: chunks of text. Goes out: the top-level object without its events, and the events' text as far as it was read.
Only a top-level `traceEvents` counts; the same key inside another object does not.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from tracekit.errors import NotATraceError
from tracekit.model.events import TraceHeader
from tracekit.model.notes import Note
from tracekit.read.decode.metadata_keys import parse_header, parse_top_level
from tracekit.read.files.inflate import TextChunks

__all__ = [
    "LONGEST_HEADER_BYTES",
    "Head",
    "no_events",
    "read_head",
    "search_events",
    "tail_keys_text",
    "trace_header",
]

LONGEST_HEADER_BYTES = 256 << 20

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
# Behind the last event: an array of arguments may end alike, but then what follows is no whole object.
_BEHIND_EVENTS = re.compile(rb'\}\s*\]\s*,\s*(?=")')
_TOP_LEVEL = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, kw_only=True)
class Head:
    keys: bytes  # a JSON object; `{}` in array form
    rest: bytes  # what was read behind the `[` of the events
    position: int  # of `rest` in the text
    is_object: bool  # False in array form: nothing can stand behind the events


def read_head(chunks: Iterator[bytes], source: TextChunks, longest_bytes: int) -> Head:
    """Read `chunks` (of `source`) up to the events. Raises NotATraceError when there are none in `longest_bytes`."""
    head, text = search_events(chunks, longest_bytes)
    if head is not None:
        return head
    name, damage = source.path.name, source.cut_off
    if damage is not None:
        reason, hint, kind = damage.what, "copy it again, or record again", "ignored_file"
    elif not text.strip():
        reason, hint, kind = "the file is empty", "the job may have died while it wrote; record again", "empty"
    else:
        reason, hint = "not a trace (no traceEvents in it)", "give Chrome-trace JSON files of torch.profiler"
        kind = "ignored_file"
    raise NotATraceError(f"{name}: {reason}", hint=hint, reason=reason, kind=kind)


def search_events(chunks: Iterator[bytes], longest_bytes: int) -> tuple[Head | None, bytes]:
    """Read up to the events; None when they do not come. And the text that was read, as far as it was looked at."""
    text = b""
    pieces: list[bytes] = []
    for chunk in itertools.chain(chunks, [b""]):
        pieces.append(chunk)
        # Looked through again when it has doubled, and at the end: never the same text for every chunk.
        if chunk and sum(map(len, pieces)) < len(text):
            continue
        text = b"".join([text, *pieces])
        pieces = []
        head = _find_events(text)
        if head is not None or (text.strip() and not _may_begin_trace(text)) or len(text) > longest_bytes:
            return head, text
    return None, text


def _find_events(text: bytes) -> Head | None:
    """Where the events begin in the beginning of a file; None when they have not come yet."""
    text = text.removeprefix(b"\xef\xbb\xbf")
    if text.lstrip().startswith(b"["):
        position = text.index(b"[") + 1
        return Head(keys=b"{}", rest=text[position:], position=position, is_object=False)
    for match in _EVENTS_KEY.finditer(text):
        keys = text[: match.start()].rstrip().removesuffix(b",") + b"}"
        if _is_top_level(keys):
            return Head(keys=keys, rest=text[match.end() :], position=match.end(), is_object=True)
    return None


def _may_begin_trace(text: bytes) -> bool:
    return text.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def trace_header(head: Head, behind: bytes, file: str) -> tuple[TraceHeader, list[Note]]:
    """The header from the keys before the events and those in `behind`, all text after the events' `]`."""
    keys = parse_top_level(head.keys)
    if behind.strip(b", \t\r\n}"):
        keys |= parse_top_level(b"{" + behind.lstrip(b", \t\r\n"))
    return parse_header(keys, file)


def no_events(source: TextChunks) -> NotATraceError:
    """The error for a trace in which no event can be used."""
    reason, hint = "no events in it", "record again: the profiler saw nothing, or the job died while it wrote"
    if source.cut_off is not None:
        reason, hint = f"{reason} ({source.cut_off.what})", "copy it again, or record again"
    return NotATraceError(f"{source.path.name}: {reason}", hint=hint, reason=reason, kind="empty")


def tail_keys_text(tail: bytes) -> bytes:
    """The keys behind the events, as the text of an object, from the end of a trace; `{}` when there are none."""
    for match in _BEHIND_EVENTS.finditer(tail):
        text = b"{" + tail[match.end() :]
        try:
            _TOP_LEVEL.decode(text)
        except (ValueError, RecursionError):
            continue
        return text
    return b"{}"


def _is_top_level(keys: bytes) -> bool:
    """Not inside a nested object. A damaged header is taken as top level: its events still count."""
    try:
        msgspec.json.decode(keys)
    except msgspec.DecodeError as error:
        return "truncated" not in str(error)
    except (UnicodeDecodeError, RecursionError):
        return True
    return True
