"""Counts the events of an export that recording made: what the overhead of a recording is computed from."""

from __future__ import annotations

import mmap
from pathlib import Path

import msgspec

from tracekit.model.spans import CALIBRATION_SPAN, LABEL_PREFIX

_PIECE_BYTES = 2**24
_OPERATIONS = (b'"cat": "cpu_op"', b'"cat": "user_annotation"')
_PYTHON_CALL = b'"cat": "python_function"'
_SPAN = b'"name": "' + LABEL_PREFIX.encode()

__all__ = ["EventCounts", "count_events"]


class EventCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Events in the export. `calibration_operations` belong to the measurement, the others to the steps."""

    operations: int
    python_calls: int
    spans: int
    calibration_operations: int


def count_events(export: Path) -> EventCounts:
    """Count the events of an export. Operators are in order of time, so those of the measurement follow its span."""
    with export.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        end = text.find(CALIBRATION_SPAN.encode())
        steps_end = len(text) if end < 0 else end
        return EventCounts(
            operations=sum(_occurrences(text, pattern, 0, steps_end) for pattern in _OPERATIONS),
            python_calls=_occurrences(text, _PYTHON_CALL, 0, len(text)),
            spans=_occurrences(text, _SPAN, 0, steps_end),
            calibration_operations=_occurrences(text, _OPERATIONS[0], steps_end, len(text)),
        )


def _occurrences(text: mmap.mmap, pattern: bytes, begin: int, end: int) -> int:
    """Return how often `pattern` occurs. Works piece by piece, as a trace can be larger than the free memory."""
    pieces = range(begin, end, _PIECE_BYTES)
    return sum(text[i : min(i + _PIECE_BYTES + len(pattern) - 1, end)].count(pattern) for i in pieces)
