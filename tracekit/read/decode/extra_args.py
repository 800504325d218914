"""Arguments of an event that have no column of their own -> one text, the same for all events that say the same.

Comes in: the event's arguments as they are written. Goes out: a JSON object, a member a line. Of the many events that
profilers of PyTorch write few say different things once the numbers are left out that are an event's own.
"""

from __future__ import annotations

import math
from functools import lru_cache

import msgspec

__all__ = ["EXCLUDED_ARGS", "IDS", "is_in_range", "select_extra_args", "split_members"]

IDS = {
    "External id": "external_id",
    "correlation": "correlation",
    "Sequence number": "sequence_number",
    "Fwd thread id": "forward_thread",
}
"""Arguments that have a column of all events, by Kineto's names; what is no id there, such as -1, is shown nowhere."""

# By which the profiler counts its records: they tell nothing else.
_COUNTERS = ("Ev Idx", "Record function id", "Python id", "Python parent id")

EXCLUDED_ARGS = frozenset((*IDS, *_COUNTERS))

_INT64 = range(-(1 << 63), 1 << 63)
_ARGUMENTS = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
# No JSON has a zero in it, and none of the others within a string: the zeros become the ends of lines.
_BETWEEN = b",\0"
_ONE_LINE_EACH = bytes.maketrans(b"\0\n\r\t", b"\n   ")


def select_extra_args(arguments: bytes) -> str:
    """Of the JSON object of an event's arguments, or null, all that are none of `EXCLUDED_ARGS`, as they are written; ""
    for none, and where they are nested so deep that Python cannot tell."""
    try:
        members = _ARGUMENTS.decode(arguments) or {}
    except UnicodeDecodeError:  # of keys; of values nobody asks
        members = _ARGUMENTS.decode(arguments.decode("utf-8", "replace")) or {}
    except RecursionError:
        return ""
    told = [_before_value(key) + bytes(value) for key, value in members.items() if key not in EXCLUDED_ARGS]
    text = b"{" + _BETWEEN.join(told).translate(_ONE_LINE_EACH) + b"}"
    return text.decode("utf-8", "replace") if told else ""


@lru_cache
def _before_value(key: str) -> bytes:
    return msgspec.json.encode(key) + b": "


def split_members(details: str) -> list[str]:
    """The members of what `select_extra_args` has given, each with its key."""
    return details[1:-1].split(",\n")


def is_in_range(written: str) -> bool:
    """Whether a number of JSON is in the range of int64, or of float64 if it has a fraction or an exponent: of others
    readers make something else, so that they are shown as text."""
    if written.lstrip("-").isdigit():
        # A long text of digits Python does not read.
        return len(written) <= len(str(_INT64.start)) and int(written) in _INT64
    return math.isfinite(float(written))
