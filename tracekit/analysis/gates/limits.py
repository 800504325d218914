"""Limits as people write them: `5%`, `200ms`, `40GB`."""

from __future__ import annotations

import math
import re

from tracekit.analysis.gates.metrics import Unit

__all__ = ["parse_limit", "parse_share"]

_NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def parse_limit(value: object, unit: Unit) -> float:
    """Return a limit in ns, bytes or as a fraction of 1. Raises ValueError, which says what is wanted."""
    if unit == "time":
        return _quantity(value, _NANOSECONDS, "a time with its unit, such as '200ms'")
    if unit == "bytes":
        return _quantity(value, _BYTES, "a size with its unit, such as '40GB' or '40GiB'")
    return parse_share(value)


def parse_share(value: object) -> float:
    """Return a fraction for `'5%'` or 0.05. Raises ValueError for anything else, such as 5, which may mean 5 %."""
    if isinstance(value, str) and (percent := _PERCENT.fullmatch(value.strip())):
        return float(percent[1]) / 100
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise ValueError("a percentage such as '5%', or a number from 0 to 1")


def _quantity(value: object, units: dict[str, int], wanted: str) -> float:
    found = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or found[2] not in units:
        raise ValueError(wanted)
    amount = float(found[1]) * units[found[2]]
    if not math.isfinite(amount):
        raise ValueError(wanted)
    return amount
