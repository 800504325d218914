"""How values of an event's fields, as msgspec decodes them, become integers of columns, and the other arguments a text.

The text has the arguments that have no column. It is a JSON object with a member a line. Ids and counters are left out,
so that most events share their text with many others: few texts are distinct.
"""

from __future__ import annotations

import hashlib
import math
from decimal import Decimal, InvalidOperation
from functools import lru_cache

import msgspec
import numpy as np

from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.read.decode.table import LIMIT_NS

Scalar = int | float | str | None

# Above this, a float64 of microseconds has no nanoseconds any more (its step is 2**-9 us).
_EXACT_MICROSECONDS = float(1 << 43)
_LIMIT_DIGITS = 18

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


def is_inexact(microseconds: Scalar) -> bool:
    """Whether this is a float too large to carry nanoseconds: its text must be parsed."""
    return isinstance(microseconds, float) and abs(microseconds) >= _EXACT_MICROSECONDS


def exact_nanoseconds(value: Scalar) -> int | None:
    """Return microseconds, a number or text, as integer nanoseconds; None unless it is a finite number in range."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, float) and abs(value) < _EXACT_MICROSECONDS:
        whole = math.floor(value)
        return whole * 1000 + round((value - whole) * 1000)
    try:
        microseconds = Decimal(value)
    except InvalidOperation:
        return None
    if not microseconds.is_finite() or microseconds.adjusted() > _LIMIT_DIGITS:
        return None
    nanoseconds = int((microseconds * 1000).to_integral_value())
    return nanoseconds if -LIMIT_NS < nanoseconds < LIMIT_NS else None


def to_nanoseconds(microseconds: list[Scalar]) -> tuple[Int64, Bool]:
    """Return int64 nanoseconds [n], and a mask [n] of those that `exact_nanoseconds` knows."""
    try:
        values = np.array(microseconds)
    except (ValueError, OverflowError):
        values = np.empty(0, dtype=object)
    limit = LIMIT_NS // 1000
    if values.dtype == np.int64 and -limit < values.min(initial=0) <= values.max(initial=0) < limit:
        return values * 1000, np.ones(len(values), dtype=np.bool_)
    if values.dtype == np.float64 and np.all(np.abs(values) < _EXACT_MICROSECONDS):
        whole = np.floor(values)
        # The fraction of a float64 below 2**43 is exact to half a nanosecond; rounding restores the three decimals.
        nanoseconds = whole.astype(np.int64) * 1000 + np.rint((values - whole) * 1000).astype(np.int64)
        return nanoseconds, np.ones(len(values), dtype=np.bool_)
    exact = [exact_nanoseconds(value) for value in microseconds]
    known = np.array([value is not None for value in exact], dtype=np.bool_)
    return np.array([value or 0 for value in exact], dtype=np.int64), known


def to_ids(values: list[Scalar]) -> Int64:
    """Return `to_id` of each: int64 [n]."""
    try:
        ids = np.array([ABSENT if value is None else value for value in values], dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([to_id(value) for value in values], dtype=np.int64)
    ids[(ids <= -LIMIT_NS) | (ids >= LIMIT_NS)] = ABSENT
    return ids


def to_id(value: Scalar) -> int:
    """Return the value as an integer; ABSENT when it is none, or out of range."""
    if value is None:
        return ABSENT
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return ABSENT
    return number if -LIMIT_NS < number < LIMIT_NS else ABSENT


def integer_or_none(text: msgspec.Raw) -> int | None:
    """Return a value that is written as an integer in range; None for any other text."""
    try:
        number = int(bytes(text))
    except ValueError:
        return None
    return number if -LIMIT_NS < number < LIMIT_NS else None


def to_track_id(value: Scalar) -> int | str:
    """Return a pid or tid as `Track` has it."""
    if value is None:
        return ""
    return value if isinstance(value, int | str) else str(value)


def shape_hash(text: bytes) -> int:
    """Return a hash of JSON that is the same in every process; ABSENT for no text."""
    digest = hashlib.blake2b(text.replace(b" ", b""), digest_size=7).digest()
    return int.from_bytes(digest, "little") if text else ABSENT


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
