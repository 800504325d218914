"""Times, sizes and counts as text."""

from __future__ import annotations

__all__ = ["count_text", "file_size", "milliseconds"]


def milliseconds(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:,.2f}"


def file_size(size_bytes: float) -> str:
    """Return the size with three digits and a decimal unit, 1 kB = 1000 bytes."""
    size, units = float(size_bytes), ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}"


def count_text(number: int, noun: str, plural: str | None = None) -> str:
    """Return `1 rank` or `2 ranks`. plural: where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
