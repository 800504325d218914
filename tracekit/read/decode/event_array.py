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
from tracekit.limits import limits
from tracekit.read.decode.metadata_keys import parse_top_level
from tracekit.read.files.inflate import TextChunks

# A quote behind a backslash is part of a text, and begins no key.
_EVENTS_KEY = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
# Behind the last event. An array in its arguments may end in the same way, but then no whole object follows.
_BEHIND_EVENTS = re.compile(rb'\}\s*\]\s*,\s*(?=")')
# A string; of one that does not end, the quote and a backslash at the end are groups.
_STRING = re.compile(rb""""[^"\\]*+(?:\\.[^"\\]*+)*+"|(")[^"\\]*+(?:\\.[^"\\]*+)*+(\\?)\Z""", re.DOTALL)
_MAX_NESTED = 20_000  # keys of that name in other objects; no writer has one
_MAX_PARSED = 3  # of these keys: the text in front of each is parsed
_MAX_UNPLACED = 16  # errors of the parser that do not say where it stopped
_STOPPED_AT = re.compile(r"\(byte (\d+)\)")
_AS_UTF_8 = "convert it to UTF-8: iconv -t UTF-8"
_OTHER_FORMS = (  # first bytes, what they are of, and what to do; the longer of two that begin alike is first
    (b"\xff\xfe\0\0", "text in UTF-32", _AS_UTF_8),
    (b"\0\0\xfe\xff", "text in UTF-32", _AS_UTF_8),
    *((begin, "text in UTF-32", _AS_UTF_8) for begin in (b"{\0\0\0", b"[\0\0\0", b"\0\0\0{", b"\0\0\0[")),
    (b"\xff\xfe", "text in UTF-16", _AS_UTF_8),
    (b"\xfe\xff", "text in UTF-16", _AS_UTF_8),
    *((begin, "text in UTF-16", _AS_UTF_8) for begin in (b"{\0", b"[\0", b"\0{", b"\0[")),
    (b"BZh", "packed with bzip2", "unpack it with bunzip2, or pack it with gzip or zstd"),
    (b"\xfd7zXZ\0", "packed with xz", "unpack it with unxz, or pack it with gzip or zstd"),
    (b"\x1f\x8b", "packed with gzip twice", "unpack it once with gunzip"),
)
PERFETTO = ("a Perfetto trace (protobuf)", "export Chrome JSON, as prof.export_chrome_trace('rank0.json.gz') does")
"""What Kineto's and Perfetto's own traces are called, which hold no JSON, and what to do."""

# The tag of a packet and its length, and then no text.
_PACKET = re.compile(rb"\n[\x01-\xff]{1,5}[^\n]{0,16}?[\x00-\x08\x0e-\x1f\x80-\xff]", re.DOTALL)
_ANY = msgspec.json.Decoder(msgspec.Raw)
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


def read_head(chunks: Iterator[bytes], source: TextChunks) -> Head:
    """Read the `chunks` of `source` up to the events. Raises NotATraceError if none begin within the limit."""
    head, text = search_events(chunks)
    if head is not None:
        return head
    name, cut_off = source.path.name, source.cut_off
    if cut_off is not None:
        reason, hint, kind = cut_off.what, "copy it again, or record again", "ignored-file"
    elif (form := _form_of(text)) is not None:
        reason, hint, kind = f"not a trace but {form[0]}", form[1], "ignored-file"
    elif not text.strip():
        reason, hint, kind = "the file is empty", "the job may have died while it wrote; record again", "empty"
    elif _may_begin_trace(text) and len(text) > limits().keys_bytes:
        reason = f"no traceEvents in the first {len(text):,} bytes of its text ({limits().named('keys_bytes')})"
        hint, kind = "give Chrome-trace JSON files of torch.profiler", "limit"
    else:
        reason, hint = "not a trace (no traceEvents in it)", "give Chrome-trace JSON files of torch.profiler"
        kind = "ignored-file"
    raise NotATraceError(f"{name}: {reason}", hint=hint, reason=reason, kind=kind)


def _form_of(text: bytes) -> tuple[str, str] | None:
    """Return what a text is that is none of JSON in UTF-8, and what to do with it; None if that is not known."""
    for begin, what, hint in _OTHER_FORMS:
        if text.startswith(begin):
            return what, hint
    return PERFETTO if _PACKET.match(text) and not _may_begin_trace(text) else None


def search_events(chunks: Iterator[bytes]) -> tuple[Head | None, bytes]:
    """Read up to the events. Return the head, None if there are no events; and the text that was searched."""
    longest_bytes = limits().keys_bytes
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
        if head is not None and head.position > longest_bytes:  # however much was read at once
            return None, text
        if head is not None or (text.strip() and not _may_begin_trace(text)) or len(text) > longest_bytes:
            return head, text
    return None, text


def _find_events(text: bytes) -> Head | None:
    """Return the head in the beginning of a text; None if the events begin later."""
    text = text.removeprefix(b"\xef\xbb\xbf")
    if text.lstrip().startswith(b"["):
        position = text.index(b"[") + 1
        return Head(keys=b"{}", rest=text[position:], position=position, is_object=False)
    match = _events_key(text)
    if match is None:
        return None
    return Head(keys=_keys(text, match), rest=text[match.end() :], position=match.end(), is_object=True)


def _events_key(text: bytes) -> re.Match[bytes] | None:
    """Return the `"traceEvents": [` at which the events begin. Takes time linear in the text.

    It is the first one that is inside one object and no string. Behind damage nothing may be told by brackets and
    quotes, so there the first one counts. What is behind it has no influence, however much of the text is known.
    """
    depth = position = 0
    begun = b""  # of a string that goes on at `position`: its quote, and a backslash that ends there
    for number, match in enumerate(itertools.islice(_EVENTS_KEY.finditer(text), _MAX_NESTED)):
        outside = _STRING.sub(rb"\1\2", begun + text[position : match.start()])
        position, begun = match.start(), outside[len(outside.rstrip(b'"\\')) :]
        depth += sum(map(outside.count, (b"{", b"["))) - sum(map(outside.count, (b"}", b"]")))
        is_top_level = depth == 1 and not begun
        if is_top_level or (number < _MAX_PARSED and _is_invalid(_keys(text, match))):
            return match
    return None


def _keys(text: bytes, events: re.Match[bytes]) -> bytes:
    """Return the object in front of the key `events`, closed."""
    return text[: events.start()].rstrip().removesuffix(b",") + b"}"


def _may_begin_trace(text: bytes) -> bool:
    return text.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def read_behind(first: bytes, chunks: Iterator[bytes]) -> tuple[bytes, bool]:
    """Return the text behind the events, `first` and then `chunks`, up to the limit, and whether that was all."""
    longest_bytes = limits().keys_bytes
    pieces, size = [first], len(first)
    while size <= longest_bytes:
        if not (chunk := next(chunks, b"")):
            return b"".join(pieces), True
        pieces.append(chunk)
        size += len(chunk)
    return b"".join(pieces)[:longest_bytes], False


def top_level_keys(head: Head, behind: bytes) -> dict[str, bytes]:
    """Return the JSON text of each top-level key before the events, and in `behind`, the text after their `]`.

    `traceEvents` is among them if there are more events: in the document or in another one behind it, whose other keys
    are not returned.
    """
    keys = parse_top_level(head.keys)
    if not behind.strip(b", \t\r\n}"):
        return keys
    members, following = _split_documents(head, behind)
    keys |= parse_top_level(members)
    if _EVENTS_KEY.search(following) or following.lstrip().startswith(b"["):
        keys["traceEvents"] = b"[]"
    return keys


def _split_documents(head: Head, behind: bytes) -> tuple[bytes, bytes]:
    """Return the keys behind the events as a JSON object, and the text behind the document.

    Where the end of the document is not seen, all is taken for keys.
    """
    if not head.is_object and behind.lstrip()[:1] in (b"[", b"{"):
        return b"{}", behind
    members = b"{" + behind.lstrip(b", \t\r\n")
    try:
        _ANY.decode(members)
    except (ValueError, RecursionError) as error:
        if "trailing" in str(error) and (stopped := _STOPPED_AT.search(str(error))):
            end = int(stopped[1]) - 1  # the parser counts the character at which it stopped
            return members[:end], members[end:]
    return members, b""


def no_events_error(source: TextChunks) -> NotATraceError:
    """Return the error for a trace in which no event can be used."""
    reason, hint = "no events in it", "record again: the profiler saw nothing, or the job died while it wrote"
    if source.cut_off is not None:
        reason, hint = f"{reason} ({source.cut_off.what})", "copy it again, or record again"
    return NotATraceError(f"{source.path.name}: {reason}", hint=hint, reason=reason, kind="empty")


def tail_keys_text(tail: bytes) -> bytes:
    """Return the keys behind the events as a JSON object, from the end of a trace; `{}` if there are none.

    Takes time linear in the text: what was parsed from one offset is not parsed from another one inside of it.
    """
    position = unplaced = 0
    while unplaced < _MAX_UNPLACED and (match := _BEHIND_EVENTS.search(tail, position)):
        text = b"{" + tail[match.end() :]
        try:
            _TOP_LEVEL.decode(text)
        except (ValueError, RecursionError) as error:
            stopped = _STOPPED_AT.search(str(error))
            unplaced += stopped is None
            position = match.end() if stopped is None else max(match.end(), match.end() + int(stopped[1]) - 2)
            continue
        return text
    return b"{}"


def _is_invalid(keys: bytes) -> bool:
    """Whether `keys` is neither an object nor the beginning of one."""
    try:
        _ANY.decode(keys)
    except msgspec.DecodeError as error:
        return "truncated" not in str(error)
    except RecursionError:
        return True
    return False
