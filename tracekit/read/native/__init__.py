"""The native decoder: a trace file to columns with a scanner in C++, the same columns as `read.portable` gives.

Comes in: the path of a trace. Goes out: a `DecodedTrace`, or None for a file that only the portable decoder can judge:
a damaged one, or one in a form that no profiler writes. Importing this fails where the extension was not built.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from tracekit.model.events import ABSENT, DecodedTrace, EventTable, Track
from tracekit.model.operators import MULTIPLYING
from tracekit.read.columns import COMMUNICATION_PREFIXES, shape_hash
from tracekit.read.head import LONGEST_HEADER_BYTES, no_events, read_head, trace_header
from tracekit.read.inflate import TextChunks
from tracekit.read.losses import Losses
from tracekit.read.native._scanner import NotUnderstoodError, Scanner
from tracekit.read.storage import TracePath
from tracekit.read.table import COLLECTIVE_NUMBERS, COLLECTIVE_TEXT, DENSE, SHAPES, build_table

__all__ = ["decode"]

_PIECE_BYTES = 192 << 10  # stays in the cache of a core between inflating and scanning


def decode(path: TracePath) -> DecodedTrace | None:
    """Decode one trace file; None when that takes the portable decoder.

    Raises NotATraceError when the file is empty or holds no usable event, InputError when it cannot be read at all.
    """
    chunks = TextChunks(path, chunk_bytes=_PIECE_BYTES)
    pieces = iter(chunks)
    head = read_head(pieces, chunks, LONGEST_HEADER_BYTES)
    scanner = Scanner(
        communication_prefixes=[prefix.encode() for prefix in COMMUNICATION_PREFIXES],
        multiplying=[name.encode() for name in MULTIPLYING],
    )
    try:
        behind = _scan(scanner, head.rest, pieces)
        if behind is None or chunks.cut_off is not None:
            return None
        header, header_notes = trace_header(head, behind, path.name)
        events, dropped = _events(scanner.take(), header.base_time_ns)
    except (NotUnderstoodError, UnicodeDecodeError, msgspec.DecodeError):
        return None
    if not len(events):
        raise no_events(chunks)
    notes = (*chunks.notes, *header_notes, *Losses(dropped=dropped).notes(path.name))
    return DecodedTrace(file=str(path), header=header, events=events, complete=True, notes=notes)


def _scan(scanner: Scanner, first: bytes, pieces: Iterator[bytes]) -> bytes | None:
    """Feed the scanner; return all text behind the events' closing `]`, or None when it never came."""
    for piece in itertools.chain([first], pieces, [b""]):
        behind = scanner.feed(piece)
        if behind is not None:
            return behind + b"".join(pieces)
    return None


def _events(found: dict[str, Any], base_time_ns: int) -> tuple[EventTable, Counter[str]]:
    """The table, and how many events were dropped, by kind of note."""
    numbers: dict[str, int] = {}
    texts = _numbered(numbers, [_text(text) for text in found["texts"]])
    values = _numbered(numbers, [value.decode("utf-8", "replace") for value in found["values"]])
    dense = {name: np.frombuffer(column, dtype=_DTYPES[name]) for name, column in found["dense"].items()}
    dense["name"], dense["category"] = texts[dense["name"]], texts[dense["category"]]
    hashes = np.array([*map(shape_hash, found["values"]), ABSENT], dtype=np.int64)
    dense["shape"] = hashes[dense["shape"]]
    collectives, operators = _sparse(found["collectives"]), _sparse(found["operators"])
    for name in COLLECTIVE_TEXT:
        collectives[name] = texts[collectives[name]]
    for name in SHAPES:
        collectives[name], operators[name] = values[collectives[name]], values[operators[name]]
    events, outside = build_table(
        base_time_ns=base_time_ns,
        strings=list(numbers),
        tracks=_tracks(found["tracks"], found["labels"]),
        dense=dense,
        collectives=collectives,
        operators=operators,
        other_phases={phase.decode(): count for phase, count in found["other_phases"]},
    )
    dropped = {
        "malformed_event": found["malformed"],
        "negative_duration": found["negative_durations"],
        "out_of_range": outside,
    }
    return events, Counter(dropped)


_DTYPES = DENSE | {"shape": np.int32} | dict.fromkeys(("row", *COLLECTIVE_NUMBERS), np.int64)


def _sparse(columns: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.frombuffer(column, dtype=_DTYPES.get(name, np.int32)) for name, column in columns.items()}


def _numbered(numbers: dict[str, int], texts: list[str]) -> np.ndarray:
    """Where each of `texts` stands in `numbers`, to which new ones are added; the last entry answers for ABSENT."""
    return np.array([*(numbers.setdefault(text, len(numbers)) for text in texts), ABSENT], dtype=np.int32)


def _text(raw: bytes) -> str:
    """What stands between the quotes of a JSON string, decoded; an error when it is no valid UTF-8."""
    if b"\\" not in raw:
        return raw.decode()
    return msgspec.json.decode(b'"' + raw + b'"', type=str)


def _tracks(
    tracks: list[tuple[int | bytes | None, int | bytes | None]],
    labels: list[tuple[bool, tuple[int | bytes | None, int | bytes | None], bytes]],
) -> list[Track]:
    processes, threads = {}, {}
    for names_process, track, label in labels:
        if names_process:
            processes[track[0]] = _text(label)
        else:
            threads[track] = _text(label)
    return [
        Track(
            pid=_track_id(track[0]),
            tid=_track_id(track[1]),
            process_name=processes.get(track[0], ""),
            thread_name=threads.get(track, ""),
        )
        for track in tracks
    ]


def _track_id(value: int | bytes | None) -> int | str:
    if value is None:
        return ""
    return value if isinstance(value, int) else _text(value)
