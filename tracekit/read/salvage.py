"""Events out of text that the strict decoder refused.

Comes in: a stretch of the events array. Goes out: every event in it that can be read, with what the others suffered
from. The text is split where an event seems to begin and each piece is decoded, repaired, joined with the next, or
dropped: one bad event costs itself and no other.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tracekit.read.columns import RawArguments, RawEvent, Scalar

EVENT_BOUNDARY = re.compile(rb'\}\s*(,)\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"\s*:)')

_EVENT = msgspec.json.Decoder(RawEvent)
_ANYTHING = msgspec.json.Decoder()
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_CONTROL = re.compile(rb"[\x00-\x1f]")
_BAD_ESCAPE = re.compile(rb'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|(.?))', re.DOTALL)
_LONE_SURROGATE = re.compile(
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_NON_FINITE = re.compile(rb"[:\[,]\s*-?(?:NaN|Infinity|[0-9]+(?:\.[0-9]+)?[eE]\+?[0-9]{3,}|[0-9]{30,})")
_JOINED_PIECES = 8  # an event whose arguments hold objects can be split in its middle

__all__ = ["EVENT_BOUNDARY", "Salvaged", "salvage", "trailing_byte"]


@dataclass
class Salvaged:
    events: list[RawEvent] = field(default_factory=list)
    repaired: Counter[str] = field(default_factory=Counter)  # by kind of note
    dropped: Counter[str] = field(default_factory=Counter)
    first_bad_byte: int | None = None
    closed_at: int | None = None  # where the array's `]` stands


def trailing_byte(error: Exception) -> int | None:
    """Index of the first character behind a complete value, white space aside, when that is what the error is about."""
    match = _TRAILING.search(str(error))
    return int(match.group(1)) - 1 if match else None  # msgspec counts the character it stopped at


def salvage(text: bytes) -> Salvaged:
    """All readable events of `text`, a comma-separated stretch of events, up to the end of the array if it is there."""
    result = Salvaged()
    edges = [0, *(match.end(1) for match in EVENT_BOUNDARY.finditer(text)), len(text) + 1]
    first = 0
    while first < len(edges) - 1 and result.closed_at is None:
        first = _take(text, edges, first, result)
    return result


def _take(text: bytes, edges: list[int], first: int, result: Salvaged) -> int:
    """Read the piece that begins at edge `first`; return the edge behind what was used up."""
    begin = edges[first]
    piece = text[begin : edges[first + 1] - 1]
    if not piece.strip():
        return first + 1
    event, kind = _read(piece)
    if event is None and kind == "closed":
        length = _closed_length(piece)
        event, kind = _read(piece[:length])
        result.closed_at = begin + length
    elif event is None:
        for last in range(first + 2, min(first + 1 + _JOINED_PIECES, len(edges))):
            joined, joined_kind = _read(text[begin : edges[last] - 1], repair=False)
            if joined is not None:
                result.events.append(joined)
                return last
            if joined_kind == "closed":
                break
    if event is not None:
        result.events.append(event)
        if kind:
            result.repaired[kind] += 1
    else:
        result.dropped[kind] += 1
        if result.first_bad_byte is None:
            result.first_bad_byte = begin
    return first + 1


def _read(piece: bytes, repair: bool = True) -> tuple[RawEvent | None, str]:
    """The event and what was repaired in it, or None and what it suffered from ("closed": the array ends in it)."""
    if piece.lstrip().startswith(b"]"):
        return None, "closed"
    try:
        return _EVENT.decode(piece), ""
    except msgspec.ValidationError:
        return _coerced(piece)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if trailing_byte(error) is not None and piece[_closed_length(piece) :].startswith(b"]"):
            return None, "closed"
    except RecursionError:
        return None, "limit"
    if not repair:
        return None, "malformed_event"
    if _NON_FINITE.search(piece):
        return None, "non_finite"
    fixed = _repaired(piece)
    try:
        event = _EVENT.decode(fixed)
    except (ValueError, RecursionError):
        return None, "malformed_event"
    return event, "escape" if fixed.isascii() or piece.isascii() else "encoding"


def _closed_length(piece: bytes) -> int:
    """Length of the event at the start of `piece` with the white space behind it."""
    if piece.lstrip().startswith(b"]"):
        return len(piece) - len(piece.lstrip())
    try:
        _ANYTHING.decode(piece)
    except (ValueError, RecursionError) as error:
        end = trailing_byte(error) if isinstance(error, msgspec.DecodeError) else None
        return len(piece) if end is None else end
    return len(piece)


def _repaired(piece: bytes) -> bytes:
    """Valid UTF-8 without control characters, invalid escapes or lone surrogates."""
    fixed = piece.decode("utf-8", "replace").encode()
    fixed = _CONTROL.sub(b" ", fixed)
    fixed = _BAD_ESCAPE.sub(lambda m: m.group() if m.group(1) else b"\\\\" + m.group(2), fixed)
    return _LONE_SURROGATE.sub(lambda m: m.group(1) or b"\\ufffd", fixed)


def _coerced(piece: bytes) -> tuple[RawEvent | None, str]:
    """An event whose fields have unexpected types, as far as it makes sense; null and non-object events are dropped."""
    try:
        value = _ANYTHING.decode(piece)
    except (ValueError, RecursionError):
        return None, "non_finite" if _NON_FINITE.search(piece) else "malformed_event"
    if not isinstance(value, dict):
        return None, "malformed_event"
    ts, dur = _scalar(value.get("ts")), _scalar(value.get("dur"))
    if (ts is None and value.get("ts") is not None) or (dur is None and value.get("dur") is not None):
        return None, "non_finite" if _NON_FINITE.search(piece) else "malformed_event"
    arguments = value.get("args")
    event = RawEvent(
        ph=_text(value.get("ph")),
        name=_text(value.get("name")),
        cat=_text(value.get("cat")),
        ts=ts,
        dur=dur,
        pid=_scalar(value.get("pid")),
        tid=_scalar(value.get("tid")),
        args=_coerced_arguments(arguments) if isinstance(arguments, dict) else None,
    )
    return event, "malformed_event"


def _coerced_arguments(arguments: dict[str, Any]) -> RawArguments:
    kept = RawArguments()
    for field_, key in zip(RawArguments.__struct_fields__, RawArguments.__struct_encode_fields__, strict=True):
        if key not in arguments:
            continue
        if isinstance(getattr(kept, field_), msgspec.Raw):
            setattr(kept, field_, msgspec.Raw(msgspec.json.encode(arguments[key])))
        else:
            setattr(kept, field_, _scalar(arguments[key]))
    return kept


def _scalar(value: object) -> Scalar:
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)
