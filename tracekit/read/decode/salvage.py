"""The readable events of text that the strict decoder refused.

The text is cut into values where the parser finds their ends. A value without a readable end is cut where the next
event seems to begin. It is repaired or dropped: one bad event costs no other.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tracekit.read.decode.field_values import Scalar
from tracekit.read.decode.written_events import RawArguments, RawEvent, RawText

EVENT_BOUNDARY = re.compile(rb'\}\s*(,)\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"\s*:)')

_EVENT = msgspec.json.Decoder(RawEvent)
_AS_WRITTEN = msgspec.json.Decoder(RawText)
_ANYTHING = msgspec.json.Decoder()
_EXTENT = msgspec.json.Decoder(msgspec.Raw)
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_SEPARATORS = re.compile(rb"[\s,]*")
_FIRST_KEY = re.compile(rb'\{\s*"([a-z]{1,8})"\s*:')
_ARRAY_END = re.compile(rb'\}\s*(\])\s*(?:\}\s*$|,\s*"[^"]*"\s*:)')
_CLOSING = re.compile(rb'\]\s*,\s*"')
_CLOSING_AT_END = re.compile(rb"\][\s,]*\}?\s*$")
_CONTROL = re.compile(rb"[\x00-\x1f]")
_BAD_ESCAPE = re.compile(rb'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|(.?))', re.DOTALL)
_LONE_SURROGATE = re.compile(
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_NON_FINITE = re.compile(rb"[:\[,]\s*[-+]?(?:nan|inf|1\.#|[0-9]+(?:\.[0-9]+)?e\+?[0-9]{3,}|[0-9]{30,})", re.IGNORECASE)
# A string; a colon without a value; a value that is neither a string, an object nor an array.
_STRING_OR_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\Z)|:\s*(?=[,}])|[^\s"{}\[\],:]+', re.DOTALL)
_USABLE = re.compile(rb"true|false|null|-?(?:0|[1-9][0-9]{0,29})(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,2})?")
_WINDOW_BYTES = 64 << 10
_CUT = -1


@dataclass
class Salvaged:
    """The events of a piece of the array.

    Attributes:
        events: Those that could be read.
        repaired: How many were repaired, by kind of note.
        dropped: How many were dropped, by kind of note.
        first_bad_byte: Offset of the first dropped event.
        closed_at: Offset of the closing `]` of the array, if it is there.
        consumed: How many bytes were used. The rest is the beginning of an event that goes on behind the text.
    """

    events: list[RawEvent] = field(default_factory=list)
    repaired: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    first_bad_byte: int | None = None
    closed_at: int | None = None
    consumed: int = 0


def trailing_byte(error: Exception) -> int | None:
    """Return the index of the first character behind a complete value, if the error is about that character."""
    match = _TRAILING.search(str(error))
    return int(match.group(1)) - 1 if match else None  # msgspec counts the character it stopped at


def salvage(text: bytes, *, last: bool) -> Salvaged:
    """Return all readable events of `text`, events separated by commas, up to the end of the array if it is there.

    `last`: no text follows, so that an event without an end is damaged.
    """
    result = Salvaged()
    # A number cut behind its point is malformed to the parser, not cut off.
    ends_inside = not text[-_WINDOW_BYTES:].rstrip().endswith((b"}", b"]"))
    while True:
        begin = result.consumed = _end_of(_SEPARATORS, text, result.consumed)
        if begin == len(text):
            return result
        if _CLOSING.match(text, begin) or (last and _CLOSING_AT_END.match(text, begin)):
            result.closed_at = begin
            return result
        length = _extent(text, begin)
        cut_off = last and (length == _CUT or (length is None and ends_inside))
        if length is None or cut_off:
            length = _invalid_length(text, begin, last)
        if length == _CUT:
            return result
        piece = text[begin : begin + length]
        event, kind = _read(piece)
        result.consumed = begin + length
        if event is None and cut_off and result.consumed == len(text):
            kind = "truncated"
        if event is not None:
            result.events.append(event)
            if kind:
                result.repaired[kind] += 1
        else:
            result.dropped[kind] += 1
            if result.first_bad_byte is None:
                result.first_bad_byte = begin


def _end_of(pattern: re.Pattern[bytes], text: bytes, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position


def _extent(text: bytes, begin: int) -> int | None:
    """Return the length of the JSON value at `begin`; `_CUT` if the text ends inside it, None if it is malformed."""
    width = _WINDOW_BYTES
    while True:
        window = text[begin : begin + width]
        try:
            _EXTENT.decode(window)
        except RecursionError:
            return None
        except msgspec.DecodeError as error:
            if (end := trailing_byte(error)) is not None:
                return end
            if "truncated" not in str(error):
                return None
            if begin + width >= len(text):
                return _CUT
            width *= 8
        else:
            return len(window)


def _invalid_length(text: bytes, begin: int, last: bool) -> int:
    """Return the length of a value without a readable end: to where the next may begin; `_CUT` if that is not seen."""
    # Events begin with the same key or have a phase; other objects may be arguments.
    key = _FIRST_KEY.match(text, begin)
    following = EVENT_BOUNDARY
    if key:
        following = re.compile(rb',\s*(?=\{\s*(?:"' + key.group(1) + rb'"|[^{}]*?"ph")\s*:)')
    if after := following.search(text, key.end() if key else begin):
        return (after.start() if key else after.start(1)) - begin
    if not last:
        return _CUT
    closing = _ARRAY_END.search(text, begin)
    return (closing.start(1) if closing else len(text)) - begin


def _read(piece: bytes) -> tuple[RawEvent | None, str]:
    """Return the event and the kind of note for a repair, or None and the kind of note for dropping it."""
    event, kind = _decoded(piece)
    if event is not None or kind == "limit":
        return event, kind
    fixed = _repaired(piece)
    usable = _STRING_OR_VALUE.sub(_usable_or_null, fixed)
    event, kind = _decoded(usable)
    if usable != fixed:  # a value that no reader can use is as good as none, and costs the event only its times
        kind = "non-finite" if _NON_FINITE.search(piece) else "malformed-event"
        has_times = event is not None and event.ts is not None and (event.ph != "X" or event.dur is not None)
        return event if has_times else None, kind
    return event, kind or ("escape" if fixed.isascii() or piece.isascii() else "encoding")


def _decoded(piece: bytes) -> tuple[RawEvent | None, str]:
    """Return the event and no kind of note, or what `_read` does."""
    try:
        return _exact(_EVENT.decode(piece), piece), ""
    except msgspec.ValidationError:
        return _coerced(piece)
    except RecursionError:
        return None, "limit"
    except ValueError:
        return None, "malformed-event"


def _usable_or_null(match: re.Match[bytes]) -> bytes:
    """Return a string or a value as it is written, and null for a value that is none, such as `inf`."""
    text = match.group()
    if text.startswith(b":"):
        return text + b"null"
    return text if text.startswith(b'"') or _USABLE.fullmatch(text) else b"null"


def _exact(event: RawEvent, piece: bytes) -> RawEvent:
    """Return the event with the text of those values that decoding changed."""
    _AS_WRITTEN.decode(piece).restore(event)
    return event


def _repaired(piece: bytes) -> bytes:
    """Return valid UTF-8 without control characters, invalid escapes or lone surrogates."""
    fixed = piece.decode("utf-8", "replace").encode()
    fixed = _CONTROL.sub(b" ", fixed)
    fixed = _BAD_ESCAPE.sub(lambda m: m.group() if m.group(1) else b"\\\\" + m.group(2), fixed)
    return _LONE_SURROGATE.sub(lambda m: m.group(1) or b"\\ufffd", fixed)


def _coerced(piece: bytes) -> tuple[RawEvent | None, str]:
    """Return an event whose fields have unexpected types, as far as they can be used. None for what is no object."""
    try:
        value = _ANYTHING.decode(piece)
    except RecursionError:
        return None, "limit"
    except ValueError:
        return None, "non-finite" if _NON_FINITE.search(piece) else "malformed-event"
    if not isinstance(value, dict):
        return None, "malformed-event"
    ts, dur = _scalar(value.get("ts")), _scalar(value.get("dur"))
    if (ts is None and value.get("ts") is not None) or (dur is None and value.get("dur") is not None):
        return None, "non-finite" if _NON_FINITE.search(piece) else "malformed-event"
    arguments = value.get("args")
    event = RawEvent(
        ph=_text(value.get("ph")),
        name=_text(value.get("name")),
        cat=_text(value.get("cat")),
        ts=ts,
        dur=dur,
        pid=_track_id(value.get("pid")),
        tid=_track_id(value.get("tid")),
        args=_coerced_arguments(arguments) if isinstance(arguments, dict) else None,
        written_args=_AS_WRITTEN.decode(piece).args if isinstance(arguments, dict) else msgspec.Raw(b"null"),
    )
    return event, "malformed-event"


def _coerced_arguments(arguments: dict[str, Any]) -> RawArguments:
    coerced = RawArguments()
    for field_, key in zip(RawArguments.__struct_fields__, RawArguments.__struct_encode_fields__, strict=True):
        if key not in arguments:
            continue
        if isinstance(getattr(coerced, field_), msgspec.Raw):
            setattr(coerced, field_, msgspec.Raw(msgspec.json.encode(arguments[key])))
        else:
            setattr(coerced, field_, _scalar(arguments[key]))
    return coerced


def _scalar(value: object) -> Scalar:
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else None


def _track_id(value: object) -> Scalar:
    scalar = _scalar(value)
    return str(scalar) if isinstance(scalar, int) and not -(1 << 63) <= scalar < 1 << 63 else scalar


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)
