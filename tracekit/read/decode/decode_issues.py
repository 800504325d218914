"""Notes about the events that were repaired or dropped while a trace was decoded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tracekit.model.notes import Note

__all__ = ["DecodeIssues", "count_of_events"]

_DAMAGE = {
    "encoding": "invalid UTF-8",
    "escape": "invalid escapes or control characters",
    "limit": "deeper nesting or more text than the limits allow",
    "malformed_event": "missing or unusable fields",
    "negative_duration": "a negative duration",
    "non_finite": "NaN, Infinity or numbers out of range",
    "out_of_range": "times a day away from the rest of the recording",
    "truncated": "no end",
}


@dataclass(kw_only=True)
class DecodeIssues:
    """Counts of damaged events.

    Attributes:
        repaired: How many, by kind of note.
        dropped: How many, by kind of note.
        first_bad_byte: Offset in the text of the first dropped event, where that is known.
    """

    repaired: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    first_bad_byte: int | None = None

    def notes(self, file: str) -> list[Note]:
        """Return one note for each kind."""
        notes = []
        for kind, count in sorted(self.repaired.items()):
            text = f"{file}: {count_of_events(count)} with {_DAMAGE[kind]} repaired"
            notes.append(Note(kind=kind, severity="info", file=file, text=text))
        where = "" if self.first_bad_byte is None else f"; the first at byte {self.first_bad_byte} of the text"
        for kind, count in sorted(self.dropped.items()):
            if count:
                text = f"{file}: {count_of_events(count)} with {_DAMAGE[kind]} left out{where}"
                notes.append(Note(kind=kind, severity="warning", file=file, text=text, events_dropped=count))
        return notes


def count_of_events(count: int) -> str:
    return "1 event" if count == 1 else f"{count:,} events"
