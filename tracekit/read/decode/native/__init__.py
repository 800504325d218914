"""The native decoder: one trace file to columns with a scanner in C++, the same columns as the portable decoder's.

It leaves damaged files, and forms that no profiler writes, to the portable decoder. Importing this module fails where
the extension was not built.
"""

from __future__ import annotations

import secrets
from typing import Any

import msgspec
import numpy as np

from tracekit.limits import limits
from tracekit.model.events import ABSENT, DecodedTrace, EventTable, Int32, Track
from tracekit.read.decode.event_array import read_behind, search_events, top_level_keys
from tracekit.read.decode.field_values import EXCLUDED_ARGS, select_extra_args, shape_hash
from tracekit.read.decode.metadata_keys import parse_header
from tracekit.read.decode.native._scanner import INTERFACE, PADDING_BYTES, NotUnderstoodError, Scanner
from tracekit.read.decode.operators import COMMUNICATION_PREFIXES, SIZED
from tracekit.read.decode.table import COLLECTIVE_NUMBERS, DENSE, MEMORY, SHAPES, build_table
from tracekit.read.decode.written_events import WrittenEvents
from tracekit.read.files.inflate import TextStream, UnreadableText, open_text
from tracekit.read.files.storage import TracePath

__all__ = ["decode", "decode_written"]

if INTERFACE != 8:  # the extension was built from other sources
    raise ImportError(
        "the extension is of another version: install tracekit again", name="tracekit.read.decode.native._scanner"
    )

_STEP_BYTES = 1 << 20  # small enough to stay in the cache of a core between inflating and scanning
_HEAD_STEP_BYTES = 16 << 10  # most heads are a few kilobytes, and what is read with them is copied


def decode(path: TracePath, *, extra_args: bool = False) -> DecodedTrace | None:
    """Decode one trace file. None: the portable decoder must read it, or raise the error."""
    try:
        scanned, keys = _scan_file(path, extra_args=extra_args)
        header, header_notes = parse_header(keys, path.name)
        events, dropped = _events(scanned, header.base_time_ns, extra_args=extra_args)
    except (UnreadableText, NotUnderstoodError, UnicodeDecodeError, msgspec.DecodeError):
        return None
    if not len(events) or dropped:  # the portable decoder also knows where events are lost
        return None
    return DecodedTrace(
        file=str(path),
        header=header,
        events=events,
        complete=True,
        notes=tuple(header_notes),
        keys=keys if extra_args else {},
    )


def decode_written(path: TracePath) -> WrittenEvents | None:
    """Return the slices of one trace file as they are written. None: the portable decoder must read it."""
    try:
        scanned, keys = _scan_file(path, extra_args=True)
        texts, tracks = [_text(text) for text in scanned["texts"]], _tracks(scanned["tracks"], scanned["labels"])
    except (UnreadableText, NotUnderstoodError, UnicodeDecodeError, msgspec.DecodeError):
        return None
    dense = _arrays({name: scanned["dense"][name] for name in WrittenEvents.COLUMNS})
    if not len(dense["position"]):
        return None
    return WrittenEvents(
        texts=texts,
        tracks=tracks,
        arguments=dense.pop("extra_args"),
        argument_texts=[b"{" + members + b"}" for members in scanned["extra_args_texts"]],
        keys=keys,
        has_other_phases=bool(scanned["other_phases"])
        or any(len(_arrays(scanned[name])["time_ns"]) for name in ("memory", "counters")),
        **dense,
    )


def _scan_file(path: TracePath, *, extra_args: bool) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return what the scanner takes from a file, and its top-level keys.

    Raises UnreadableText or NotUnderstoodError when only the portable decoder can judge the file.
    """
    scanner = Scanner(
        communication_prefixes=[prefix.encode() for prefix in COMMUNICATION_PREFIXES],
        multiplying=[name.encode() for name in SIZED],
        excluded_args=[name.encode() for name in EXCLUDED_ARGS] if extra_args else None,
        max_events=limits().events,
        seed=secrets.randbits(64),
    )
    with open_text(path) as text:
        head, _ = search_events(iter(lambda: text.read(_HEAD_STEP_BYTES), b""))
        behind = None if head is None else _scan(scanner, head.rest, text)
    if head is None or behind is None:
        raise UnreadableText
    return scanner.take(), top_level_keys(head, behind)


def _scan(scanner: Scanner, first: bytes, text: TextStream) -> bytes | None:
    """Scan `first` and the rest of `text`. Return the text behind the closing `]` of the events, None without a `]`.

    None, too, where a limit is reached.
    """
    longest_bytes = limits().event_bytes
    buffer = bytearray(first) + bytes(_STEP_BYTES + PADDING_BYTES)
    held = len(first)
    while True:
        used, closed = scanner.scan(buffer, held)
        if closed:
            behind, is_whole = read_behind(bytes(buffer[used:held]), iter(lambda: text.read(_STEP_BYTES), b""))
            return behind if is_whole else None
        held -= used
        buffer[:held] = buffer[used : used + held]
        if held > longest_bytes:
            return None
        # Read as much again as is held, so that a long event is not scanned again after each step.
        end = held + max(_STEP_BYTES, held)
        if len(buffer) < end + PADDING_BYTES:
            buffer += bytes(end + PADDING_BYTES - len(buffer))
        with memoryview(buffer) as whole, whole[held:end] as free:
            count = text.readinto(free)
        if count == 0:
            return None
        held += count


def _events(scanned: dict[str, Any], base_time_ns: int, *, extra_args: bool) -> tuple[EventTable, int]:
    """Return the table, and how many events were dropped."""
    texts = [_text(text) for text in scanned["texts"]]
    values = [value.decode("utf-8", "replace") for value in scanned["values"]]
    extra_args_texts = [select_extra_args(b"{" + members + b"}") for members in scanned["extra_args_texts"]]
    dense, collectives, operators = (_arrays(scanned[name]) for name in ("dense", "collectives", "operators"))
    hashes = np.array([*map(shape_hash, scanned["values"]), ABSENT], dtype=np.int64)
    dense["shape"] = np.take(hashes, dense["shape"])
    synchronisations, counters = (_arrays(scanned[name]) for name in ("synchronisations", "counters"))
    for table in (collectives, operators, synchronisations, counters):
        for name in table.keys() & {"arguments", *SHAPES}:
            table[name] = _shifted(table[name], by=len(texts))
    extra, position = _shifted(dense.pop("extra_args"), by=len(texts) + len(values)), dense.pop("position")
    if extra_args:
        dense |= {"extra_args": extra, "position": position}
    events, outside = build_table(
        base_time_ns=base_time_ns,
        strings=texts + values + extra_args_texts,
        tracks=_tracks(scanned["tracks"], scanned["labels"]),
        dense=dense,
        collectives=collectives,
        operators=operators,
        memory=_arrays(scanned["memory"]),
        synchronisations=synchronisations,
        counters=counters,
        other_phases={phase.decode(): count for phase, count in scanned["other_phases"]},
    )
    return events, scanned["malformed"] + scanned["negative_durations"] + outside


_DTYPES = DENSE | {"shape": np.int32} | dict.fromkeys(("row", *COLLECTIVE_NUMBERS, *MEMORY), np.int64)


def _arrays(columns: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.frombuffer(column, dtype=_DTYPES.get(name, np.int32)) for name, column in columns.items()}


def _shifted(ids: Int32, *, by: int) -> Int32:
    shifted: Int32 = np.where(ids == ABSENT, ABSENT, ids + by)
    return shifted


def _text(raw: bytes) -> str:
    """Decode a JSON string without its quotes. Raises UnicodeDecodeError or msgspec.DecodeError."""
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
