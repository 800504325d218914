"""The arguments of an event that have no column, as one text.

The text is a JSON object with a member a line. Ids and counters are left out, so that most events share their text with
many others: few texts are distinct.
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
"""Arguments that are columns of all events, by Kineto's names. A value that is no id, such as -1, is shown nowhere."""

# Numbers that the profiler gives its records, without any other meaning.
_COUNTERS = ("Ev Idx", "Record function id", "Python id", "Python parent id")

EXCLUDED_ARGS = frozenset((*IDS, *_COUNTERS))
"""Arguments that are no extra arguments."""

_INT64 = range(-(1 << 63), 1 << 63)
_ARGUMENTS = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
# No JSON has a zero byte, nor a line end or a tab within a string. So zeros can mark where lines shall end.
_BETWEEN = b",\0"
_ONE_LINE_EACH = bytes.maketrans(b"\0\n\r\t", b"\n   ")


def select_extra_args(arguments: bytes) -> str:
    """Return the members of a JSON object that are not in `EXCLUDED_ARGS`, as they are written, as a JSON object.

    `arguments`: the object, or null. Returns "" if there are none, or if they are nested too deeply for Python.
    """
    try:
        members = _ARGUMENTS.decode(arguments) or {}
    except UnicodeDecodeError:  # of a key; values are not decoded
        members = _ARGUMENTS.decode(arguments.decode("utf-8", "replace")) or {}
    except RecursionError:
        return ""
    extra = [_before_value(key) + bytes(value) for key, value in members.items() if key not in EXCLUDED_ARGS]
    text = b"{" + _BETWEEN.join(extra).translate(_ONE_LINE_EACH) + b"}"
    return text.decode("utf-8", "replace") if extra else ""


@lru_cache
def _before_value(key: str) -> bytes:
    return msgspec.json.encode(key) + b": "


def split_members(extra_args: str) -> list[str]:
    """Return the members of a text that `select_extra_args` has returned, each with its key."""
    return extra_args[1:-1].split(",\n")


def is_in_range(number: str) -> bool:
    """Whether a JSON number fits int64, or float64 if it has a fraction or an exponent.

    Readers disagree about other numbers, so that these are shown as text.
    """
    if number.lstrip("-").isdigit():
        # Python refuses to parse very long integers, so the length comes first.
        return len(number) <= len(str(_INT64.start)) and int(number) in _INT64
    return math.isfinite(float(number))
