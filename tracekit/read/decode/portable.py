"""The portable decoder: one trace file to columns with msgspec, in chunks.

It defines what a trace means, and salvages damaged files. Notes tell which events were repaired or dropped. Memory
holds the columns and one chunk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from tracekit.errors import NotATraceError
from tracekit.limits import limits
from tracekit.model.events import DecodedTrace
from tracekit.model.notes import Note
from tracekit.process_tuning import no_garbage_collection
from tracekit.read.decode.columns import ColumnBuilder
from tracekit.read.decode.event_array import no_events_error, read_behind, read_head, top_level_keys
from tracekit.read.decode.metadata_keys import parse_header
from tracekit.read.decode.salvage import EVENT_BOUNDARY, salvage, trailing_byte
from tracekit.read.decode.written_events import RawEvent, RawText
from tracekit.read.files.inflate import CutOff, TextChunks
from tracekit.read.files.storage import TracePath

_BOUNDARY_SEARCH_BYTES = 16 << 10

_EVENTS = msgspec.json.Decoder(list[RawEvent])
_AS_WRITTEN = msgspec.json.Decoder(list[RawText])

_INVALID = {
    "encoding": "invalid UTF-8",
    "escape": "invalid escapes or control characters",
    "limit": "deeper nesting or more text than the limits allow",
    "malformed-event": "missing or unusable fields",
    "negative-duration": "a negative duration",
    "non-finite": "NaN, Infinity or numbers out of range",
    "out-of-range": "times a day away from the rest of the recording",
    "truncated": "no end",
}


def decode(path: TracePath, *, extra_args: bool = False) -> DecodedTrace:
    """Decode one trace file. `extra_args`: keep all arguments of its events.

    Raises NotATraceError when the file is empty or has no usable event, InputError when it cannot be read.
    """
    with no_garbage_collection():
        decoding = _Decoding(path, extra_args=extra_args)
        trace, cut_off = decoding.run(), decoding.chunks.cut_off
        if trace.intact or cut_off is None or not cut_off.checked_bytes:
            return trace
        with suppress(NotATraceError):  # no event is in front of what may be wrong
            return _Decoding(path, extra_args=extra_args, checked_by=cut_off).run()
        return trace


class _Decoding:
    """The state of decoding one file. `position`: offset in the text of the first byte of the buffer."""

    def __init__(self, path: TracePath, *, extra_args: bool, checked_by: CutOff | None = None) -> None:
        self.path = path
        self.chunks = TextChunks(path, checked_by=checked_by)
        self.columns = ColumnBuilder(extra_args=extra_args)
        self.extra_args = extra_args
        self.issues = DecodeIssues()
        self.position = 0
        self.limits = limits()

    def run(self) -> DecodedTrace:
        chunks = iter(self.chunks)
        head = read_head(chunks, self.chunks)
        self.position = head.position
        tail = self._read_events(head.rest, chunks)
        behind, is_whole = (b"", True) if tail is None else read_behind(tail, chunks)
        keys = top_level_keys(head, behind)
        header, header_notes = parse_header(keys, self.path.name)
        if not is_whole:
            what = f"of the text behind the events the rest is left out ({self.limits.named('keys_bytes')})"
            text = f"{self.path.name}: {what}"
            header_notes.append(Note(id="limit", severity="warning", file=self.path.name, text=text))
        complete = tail is not None and self.chunks.cut_off is None
        events = self.columns.table(header.base_time_ns)
        if not len(events):
            raise no_events_error(self.chunks)
        self.issues.dropped += self.columns.dropped
        return DecodedTrace(
            file=str(self.path),
            header=header,
            events=events,
            complete=complete,
            intact=self.chunks.cut_off is None or self.chunks.cut_off.intact,
            notes=(*self.chunks.notes, *header_notes, *self._notes(len(events), complete=complete)),
            keys=keys if self.extra_args else {},
        )

    def _read_events(self, buffer: bytes, chunks: Iterator[bytes]) -> bytes | None:
        """Add all events to the columns. Return the text behind their closing `]`, None if there is no `]`."""
        while True:
            cut = _last_boundary(buffer)
            chunk = next(chunks, None)
            too_long = len(buffer) > self.limits.event_bytes
            if chunk is None:
                closed, _ = self._add(buffer, last=True)
                if closed is None:
                    self.position += len(buffer)
                return None if closed is None else buffer[closed + 1 :]
            if cut is not None or too_long:
                # Where no end of an event is seen in long text, values are looked for one by one.
                piece = buffer if cut is None else buffer[: cut - 1]
                closed, used = self._add_salvaged(piece, last=False) if cut is None else self._add(piece, last=too_long)
                if closed is not None:
                    return buffer[closed + 1 :] + chunk
                if too_long and not used:
                    self._stop_at("event_bytes", "an event is longer than is read")
                    return None
                rest = buffer[used:].lstrip(b", \t\r\n")
                self.position += len(buffer) - len(rest)
                buffer = rest
            if self.columns.met > self.limits.events:
                self._stop_at("events", "more events than are read")
                return None
            pieces = [buffer, chunk]
            if cut is None:  # search again only when the text has doubled: else the cost would be quadratic
                missing = len(buffer) - len(chunk)
                while missing > 0 and (more := next(chunks, None)) is not None:
                    pieces.append(more)
                    missing -= len(more)
            buffer = b"".join(pieces)

    def _stop_at(self, limit: str, what: str) -> None:
        where = f"reading stopped at byte {self.position} of the text"
        intact = self.chunks.cut_off is None or self.chunks.cut_off.intact
        self.chunks.cut_off = CutOff(kind="limit", what=f"{what} ({self.limits.named(limit)}): {where}", intact=intact)

    def _add(self, text: bytes, *, last: bool) -> tuple[int | None, int]:
        """Decode a piece of the array. Return the offset of its closing `]`, if it is there, and how much was used."""
        try:
            events = self._events(b"[" + text + b"]")
        except (ValueError, RecursionError) as error:
            end = trailing_byte(error) if isinstance(error, msgspec.DecodeError) else None
            if end is None:
                return self._add_salvaged(text, last=last)
            closed = text.rindex(b"]", 0, end - 1)  # -1: for the "[" before the text
            self._add(text[:closed], last=True)
            return closed, closed + 1
        self.columns.add(events)
        return None, len(text)

    def _add_salvaged(self, text: bytes, *, last: bool) -> tuple[int | None, int]:
        result = salvage(text, last=last)
        issues = self.issues
        if result.first_bad_byte is not None and issues.first_bad_byte is None:
            issues.first_bad_byte = self.position + result.first_bad_byte
        issues.repaired += result.repaired
        issues.dropped += result.dropped
        self.columns.add(result.events)
        return result.closed_at, result.consumed

    def _events(self, text: bytes) -> list[RawEvent]:
        events = _EVENTS.decode(text)
        if self.extra_args or any(event.is_kept_as_written for event in events):
            for event, written in zip(events, _AS_WRITTEN.decode(text), strict=True):
                written.restore(event)
        return events

    def _notes(self, events: int, *, complete: bool) -> list[Note]:
        name = self.path.name
        notes = []
        if not complete:
            cut_off = self.chunks.cut_off
            what = f"cut off at byte {self.position}" if cut_off is None else cut_off.what
            text = f"{name}: {what} after {count_of_events(events)}, which merge shows"
            kind = "truncated" if cut_off is None else cut_off.kind
            cut_events = self.issues.dropped.pop("truncated", 0)
            notes.append(Note(id=kind, severity="warning", file=name, text=text, events_dropped=cut_events))
        return notes + self.issues.notes(name)


def _last_boundary(buffer: bytes) -> int | None:
    """Return the index behind the last comma between two events, searching from the end."""
    width = _BOUNDARY_SEARCH_BYTES
    while True:
        begin = max(0, len(buffer) - width)
        last = None
        for last in EVENT_BOUNDARY.finditer(buffer, begin):  # noqa: B007 - only the last one is used
            pass
        if last is not None:
            return last.end(1)
        if begin == 0:
            return None
        width *= 8


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
            text = f"{file}: {count_of_events(count)} with {_INVALID[kind]} repaired"
            notes.append(Note(id=kind, severity="info", file=file, text=text))
        where = "" if self.first_bad_byte is None else f"; the first at byte {self.first_bad_byte} of the text"
        for kind, count in sorted(self.dropped.items()):
            if count:
                text = f"{file}: {count_of_events(count)} with {_INVALID[kind]} left out{where}"
                notes.append(Note(id=kind, severity="warning", file=file, text=text, events_dropped=count))
        return notes


def count_of_events(count: int) -> str:
    return "1 event" if count == 1 else f"{count:,} events"
