"""Times, sizes, shares and counts as text: the one place that says how each is written."""

from __future__ import annotations

__all__ = ["count_text", "duration", "figures", "file_size", "milliseconds", "percent", "scaled"]


def milliseconds(nanoseconds: float, digits: int = 2, sign: str = "") -> str:
    """Return a time for a column or a sentence in milliseconds. sign: "+" where that of a positive one is written."""
    return f"{round(nanoseconds / 1e6, digits) + 0.0:{sign},.{digits}f}"  # never -0.00


def duration(nanoseconds: float, sign: str = "") -> str:
    """Return a time to the microsecond in the unit that it is usually said in: `12.3 us`, `1.234 ms`, `2.000001 s`."""
    if abs(nanoseconds) < 1_000_000:
        return f"{nanoseconds / 1e3:{sign}.1f} us"
    if abs(nanoseconds) < 1_000_000_000:
        return f"{milliseconds(nanoseconds, 3, sign)} ms"
    return f"{nanoseconds / 1e9:{sign}.6f} s"


def file_size(size_bytes: float) -> str:
    """Return the size with three digits and a decimal unit, 1 kB = 1000 bytes."""
    return scaled(size_bytes, "B")


def scaled(value: float, unit: str) -> str:
    """Return a number with three digits and a decimal prefix of its unit: `1.54 kB`, `312 TFLOP/s`."""
    prefixes = ["", "k", "M", "G", "T", "P", "E"]
    value = float(value)
    while value >= 1000 and len(prefixes) > 1:
        value, prefixes = value / 1000, prefixes[1:]
    return f"{value:.3g} {prefixes[0]}{unit}"


def figures(number: float) -> str:
    """Return a whole number in full, and any other with three digits."""
    if isinstance(number, int) or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}" if number >= 0.01 or number <= 0 else "<0.01"


def percent(share: float, digits: int = 0, sign: str = "") -> str:
    """Return a share of 1 as a percentage. sign: "+" where that of a positive one is written."""
    return f"{(round(share, digits + 2) + 0.0) if sign else share:{sign}.{digits}%}"


def count_text(number: int, noun: str, plural: str | None = None) -> str:
    """Return `1 rank` or `2 ranks`. plural: where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
