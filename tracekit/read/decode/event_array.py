"""Where the events of a trace begin, and the top-level keys before and behind them.

Only a top-level `traceEvents` counts, not the same key inside another object.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from tracekit.errors import NotATraceError
from tracekit.read.decode.metadata_keys import parse_top_level
from tracekit.read.files.inflate import TextChunks

__all__ = [
    "LONGEST_HEADER_BYTES",
    "Head",
    "no_events_error",
    "read_head",
    "search_events",
    "tail_keys_text",
    "top_level_keys",
]

LONGEST_HEADER_BYTES = 256 << 20

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
# Behind the last event. An array in its arguments may end in the same way, but then no whole object follows.
_BEHIND_EVENTS = re.compile(rb'\}\s*\]\s*,\s*(?=")')
_TOP_LEVEL = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, kw_only=True)
class Head:
    """The text of a trace up to its events.

    Attributes:
        keys: The top-level keys before the events, as a JSON object; `{}` for a trace that is an array.
        rest: The text that was read behind the `[` of the events.
        position: Offset of `rest` in the text.
        is_object: False for a trace that is an array: it has no keys behind its events either.
    """

    keys: bytes
    rest: bytes
    position: int
    is_object: bool


def read_head(chunks: Iterator[bytes], source: TextChunks, longest_bytes: int) -> Head:
    """Read the `chunks` of `source` up to the events. Raises NotATraceError if none begin in `longest_bytes`."""
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
    """Read up to the events. Return the head, None if there are no events; and the text that was searched."""
    text = b""
    pieces: list[bytes] = []
    for chunk in itertools.chain(chunks, [b""]):
        pieces.append(chunk)
        # Search again only when the text has doubled, and at the end: else the cost would be quadratic.
        if chunk and sum(map(len, pieces)) < len(text):
            continue
        text = b"".join([text, *pieces])
        pieces = []
        head = _find_events(text)
        if head is not None or (text.strip() and not _may_begin_trace(text)) or len(text) > longest_bytes:
            return head, text
    return None, text


def _find_events(text: bytes) -> Head | None:
    """Return the head in the beginning of a text; None if the events begin later."""
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


def top_level_keys(head: Head, behind: bytes) -> dict[str, bytes]:
    """Return the JSON text of each top-level key before the events, and in `behind`, the text after their `]`."""
    keys = parse_top_level(head.keys)
    if behind.strip(b", \t\r\n}"):
        keys |= parse_top_level(b"{" + behind.lstrip(b", \t\r\n"))
    return keys


def no_events_error(source: TextChunks) -> NotATraceError:
    """Return the error for a trace in which no event can be used."""
    reason, hint = "no events in it", "record again: the profiler saw nothing, or the job died while it wrote"
    if source.cut_off is not None:
        reason, hint = f"{reason} ({source.cut_off.what})", "copy it again, or record again"
    return NotATraceError(f"{source.path.name}: {reason}", hint=hint, reason=reason, kind="empty")


def tail_keys_text(tail: bytes) -> bytes:
    """Return the keys behind the events as a JSON object, from the end of a trace; `{}` if there are none."""
    for match in _BEHIND_EVENTS.finditer(tail):
        text = b"{" + tail[match.end() :]
        try:
            _TOP_LEVEL.decode(text)
        except (ValueError, RecursionError):
            continue
        return text
    return b"{}"


def _is_top_level(keys: bytes) -> bool:
    """Whether `keys` is one object, not the beginning of nested ones. True for damaged text: its events still count."""
    try:
        msgspec.json.decode(keys)
    except msgspec.DecodeError as error:
        return "truncated" not in str(error)
    except (UnicodeDecodeError, RecursionError):
        return True
    return True
