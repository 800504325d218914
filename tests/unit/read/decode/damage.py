"""Traces with damaged text, and what their decoded form has."""

from __future__ import annotations

from pathlib import Path

from tests.unit.read.decode.decoders import decode
from tracekit.model.events import DecodedTrace


def decode_text(folder: Path, text: bytes, name: str = "rank0.json", *, extra_args: bool = False) -> DecodedTrace:
    path = folder / name
    path.write_bytes(text)
    return decode(path, extra_args=extra_args)


def names(trace: DecodedTrace) -> list[str]:
    return [trace.events.strings[i] for i in trace.events.name.tolist()]


def dropped(trace: DecodedTrace) -> dict[str, int]:
    return {note.id: note.events_dropped for note in trace.notes if note.events_dropped}


def repaired(trace: DecodedTrace) -> list[str]:
    return [note.id for note in trace.notes if not note.events_dropped]


def with_bad(bad: str, *, at: int = 1, events: int = 3) -> bytes:
    """A trace of `events` good events named e0, e1, ..., with the text `bad` put in front of event `at`."""
    good = [
        f'{{"ph": "X", "name": "e{i}", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": {i}, "dur": 1}}'
        for i in range(events)
    ]
    return (
        '{"distributedInfo": {"rank": 3}, "traceEvents": [' + ",\n".join([*good[:at], bad, *good[at:]]) + "]}"
    ).encode()


GOOD = ["e0", "e1", "e2"]
EVENT = '{"ph": "X", "name": "bad", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 1%s}'
