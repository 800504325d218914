"""How a trace is written is wrong: each function damages the bytes of one file and returns them."""

from __future__ import annotations

import gzip
import re

_EVENTS = b'"traceEvents": [\n'


# ---- the end is missing --------------------------------------------------------------------------------------------


def cut_off(text: bytes, share: float) -> bytes:
    return text[: int(share * len(text))]


def without_closing(text: bytes) -> bytes:
    """Leave out `]}` (chakra#192)."""
    return text.rstrip().removesuffix(b"}").rstrip().removesuffix(b"]")


def as_array(text: bytes) -> bytes:
    """Return the array of events alone, as old tools write it."""
    begin = text.index(b"[", text.index(b'"traceEvents"'))
    return text[begin : text.rindex(b"]") + 1]


def array_never_closed(text: bytes) -> bytes:
    """Return the array form without its end, which Chrome accepts (bazel#11863)."""
    return as_array(text).removesuffix(b"]").rstrip() + b",\n"


# ---- events --------------------------------------------------------------------------------------------------------


def with_event(text: bytes, event: str) -> bytes:
    """Put the text of an event in front of the others."""
    return text.replace(_EVENTS, _EVENTS + event.encode() + b",\n", 1)


def with_name(text: bytes, name: bytes) -> bytes:
    """Give the operators `aten::linear` another name, as it is written between the quotes."""
    return text.replace(b'"aten::linear"', b'"' + name + b'"')


def second_events_array(text: bytes, second: bytes) -> bytes:
    """Put a second key `traceEvents` behind the events, with those of another file."""
    return text.rstrip().removesuffix(b"}") + b',\n  "traceEvents": ' + as_array(second) + b"\n}\n"


def numbers_as_strings(text: bytes) -> bytes:
    return re.sub(rb'("(?:ts|dur|pid|tid)": )(-?[0-9.]+)', rb'\1"\2"', text)


# ---- packed files --------------------------------------------------------------------------------------------------


def members(text: bytes) -> bytes:
    """Pack the text as several members, as writers that append produce it."""
    third = len(text) // 3 + 1
    return b"".join(gzip.compress(text[begin : begin + third], mtime=0) for begin in range(0, len(text), third))


def bad_checksum(text: bytes) -> bytes:
    packed = gzip.compress(text, mtime=0)
    return packed[:-8] + bytes([packed[-8] ^ 0xFF]) + packed[-7:]


def bad_checksum_of_last_member(text: bytes) -> bytes:
    packed = members(text)
    return packed[:-8] + bytes([packed[-8] ^ 0xFF]) + packed[-7:]


def flipped_byte(text: bytes, share: float = 0.5) -> bytes:
    """Change one byte of the packed text, as a damaged disk or line does."""
    packed = bytearray(gzip.compress(text, mtime=0))
    packed[int(share * len(packed))] ^= 0x10
    return bytes(packed)


def trailing_garbage(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0) + b"garbage" * 100


def gzip_bomb(text: bytes, size_bytes: int = 288 << 20) -> bytes:
    """Pack the text with `size_bytes` of spaces behind its first event."""
    place = text.index(b"},\n", text.index(_EVENTS)) + 2
    first, rest = text[:place], text[place:]
    block = gzip.compress(b" " * (32 << 20), mtime=0)
    return gzip.compress(first, mtime=0) + block * (size_bytes >> 25) + gzip.compress(rest, mtime=0)
