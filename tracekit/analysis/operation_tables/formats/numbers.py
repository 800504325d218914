"""Numbers of tables, logs and traces, in range: the one place where what a stranger wrote becomes a number.

The largest values are those beyond which the analysis would be wrong: float64 loses whole numbers, int64 nanoseconds.
"""

from __future__ import annotations

import math
import re

from tracekit.analysis.operation_tables.formats.names import UNITS

__all__ = ["LARGEST", "LONGEST_NS", "UnreadableNumberError", "decimal", "shortened", "time_ns", "whole_number"]

LARGEST = 2**53 - 1
"""The largest whole number that float64, and so a JSON reader, tells from its neighbours."""
LONGEST_NS = 4 * 10**18
"""In ns since 1970 this is the year 2096: later times are in another unit."""

_SHOWN = 40  # characters of a value that an error repeats
_DIGITS = 40  # of a fraction: more do not change how it is rounded to ns
_DECIMAL = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?")


class UnreadableNumberError(ValueError):
    """A value is no number, or out of range. Its text says so, for a sentence that says where."""


def whole_number(value: object, *, least: int = -LARGEST, most: int = LARGEST) -> int:
    """Return a whole number from a text or a number. Raises UnreadableNumberError."""
    number = _finite(value)
    if number != int(number):
        raise UnreadableNumberError(f"{shortened(value)} is not an integer")
    if not least <= number <= most:
        allowed = f"at most {most}" if number > most else f"at least {least}"
        raise UnreadableNumberError(f"{shortened(value)} is out of range ({allowed})")
    return int(number)


def decimal(value: object, *, least: float = -math.inf, most: float = LONGEST_NS) -> float:
    """Return a number from a text or a number. Raises UnreadableNumberError."""
    number = _finite(value)
    if not least <= number <= most:
        allowed = f"at most {most:g}" if number > most else f"at least {least:g}"
        raise UnreadableNumberError(f"{shortened(value)} is out of range ({allowed})")
    return number


def time_ns(value: object, unit: str) -> int:
    """Return a time in ns from a text of which every digit counts, or from a number.

    Raises UnreadableNumberError.
    """
    number, scale = _finite(value), UNITS[unit]
    if abs(number) * scale > LONGEST_NS:
        raise UnreadableNumberError(f"{shortened(value)} {unit} is beyond {LONGEST_NS / 1e9:.0e} s")
    if isinstance(value, int):
        return value * scale
    match = _DECIMAL.fullmatch(_text(value)) if isinstance(value, str) else None
    if match is None:
        whole = int(number)
        return whole * scale + round((number - whole) * scale)
    whole_digits, fraction = match[2].lstrip("0") or "0", (match[3] or "0")[:_DIGITS]
    exact: int = int(whole_digits) * scale + round(int(fraction) * scale / int("1" + "0" * len(fraction)))
    return -exact if match[1] == "-" else exact


def shortened(value: object) -> str:
    """Return a value for an error, which is one line: no more than its beginning."""
    text = _text(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _finite(value: object) -> float:
    text = _text(value)
    if not text:
        raise UnreadableNumberError("the field is empty")
    try:
        number = float(value if isinstance(value, (int, float)) else text)
    except ValueError:
        raise UnreadableNumberError(f"{shortened(value)!r} is not a number") from None
    except OverflowError:  # an integer of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        is_word = text.lstrip("+-")[:3].lower() in {"inf", "nan"}
        raise UnreadableNumberError(
            f"{shortened(value)!r} is not a number" if is_word else f"{shortened(value)} is out of range"
        )
    return number


def _text(value: object) -> str:
    """Return a value as a text; nothing where a table lacks it."""
    if value is None or value != value:
        return ""
    try:
        return str(value).strip()
    except ValueError:  # an integer of more digits than Python writes
        return "a number of thousands of digits"
