"""The top-level keys of a trace, before and behind its events, as a `TraceHeader`.

A key that cannot be read becomes a note; the others still count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from tracekit.model.events import PROFILER_OPTIONS, ProcessGroup, TraceHeader
from tracekit.model.metadata import MAX_NS, MAX_RANKS, METADATA_KEY, METADATA_VERSION, CaptureMetadata, Mesh
from tracekit.model.notes import Note

# Until June 2026 Kineto wrote its log into the trace: lists of lines by severity (Kineto, output_json.cpp).
_LOG_KEYS = ("ERROR", "WARNING", "INFO")
_KNOWN_KEYS = (
    *("distributedInfo", "deviceProperties", "baseTimeNanoseconds", "host_name", "trace_id", METADATA_KEY),
    *PROFILER_OPTIONS,
    *_LOG_KEYS,
)
_LOG_PREFIX = re.compile(r"^[A-Z]+:\S+ \S+ \d+:\d+ [^\]]*\] ")  # WARNING:2024-05-22 17:15:22 291:291 Api.cpp:174]
_STOPPED_EARLY = re.compile(r"stopped early\? = [1-9]")
_WHOLE_NUMBER = re.compile(r"\s*-?[0-9]{1,20}\s*")
_TOP_LEVEL = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MAX_MEMBERS = 200_000  # of a text of which all keys are kept: several million would take gigabytes
_Known = msgspec.defstruct("_Known", [(key, msgspec.Raw, msgspec.Raw()) for key in _KNOWN_KEYS])
_KNOWN = msgspec.json.Decoder(_Known)


def parse_top_level(text: bytes) -> dict[str, bytes]:
    """Return the JSON text of each top-level key; of the known keys alone where there are very many.

    From a damaged object it returns the known keys that can be read.
    """
    try:
        if text.count(b":") > _MAX_MEMBERS:
            known = msgspec.structs.asdict(_KNOWN.decode(text))
            return {key: bytes(value) for key, value in known.items() if bytes(value)}
        return {key: bytes(value) for key, value in _TOP_LEVEL.decode(text).items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _salvage_top_level(text.decode("utf-8", "replace"))


def _salvage_top_level(text: str) -> dict[str, bytes]:
    values = {}
    decoder = json.JSONDecoder()
    for key in _KNOWN_KEYS:
        if match := re.search(rf'"{key}"\s*:\s*', text):
            try:
                value, _ = decoder.raw_decode(text, match.end())
            except (ValueError, RecursionError):
                continue
            values[key] = json.dumps(value).encode()
    return values


def parse_header(keys: Mapping[str, bytes], file: str) -> tuple[TraceHeader, list[Note]]:
    """Return the header, and a note for each known key whose value cannot be used, and for more events among `keys`."""
    values: dict[str, Any] = {}
    notes: list[Note] = []
    if "traceEvents" in keys:
        text = f"{file}: it has a second array of events behind the first; only the first is used"
        notes.append(Note(id="duplicate-event", severity="warning", file=file, text=text))
    for key in _KNOWN_KEYS:
        if key in keys and key != METADATA_KEY:
            try:
                values[key] = msgspec.json.decode(keys[key])
            except (ValueError, RecursionError) as error:
                notes.append(_unreadable(file, key, error))
    info = values.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    devices = values.get("deviceProperties")
    device_names = [d.get("name") for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []
    rank, world_size = _rank_of_world(info, file, notes)
    header = TraceHeader(
        rank=rank,
        world_size=world_size,
        backend=_text(info.get("backend")),
        process_groups=_process_groups(info.get("pg_config"), file, notes),
        device_names=tuple(name for name in device_names if isinstance(name, str)),
        host=_text(values.get("host_name")),
        trace_id=_text(values.get("trace_id")),
        base_time_ns=_integer(values.get("baseTimeNanoseconds"), -MAX_NS, MAX_NS) or 0,
        metadata=_metadata(keys.get(METADATA_KEY), file, notes),
        profiler_messages=_profiler_messages(values),
        profiler_options=tuple(option for option in PROFILER_OPTIONS if values.get(option) in (1, "1", "true")),
    )
    return header, notes


def _rank_of_world(info: Mapping[str, Any], file: str, notes: list[Note]) -> tuple[int | None, int | None]:
    """Return rank and world size; neither where they contradict each other, as either may be the wrong one."""
    rank, world_size = _integer(info.get("rank"), 0, MAX_RANKS), _integer(info.get("world_size"), 1, MAX_RANKS)
    if rank is None or world_size is None or rank < world_size:
        return rank, world_size
    text = f"{file}: it says to be rank {rank} of {world_size}, which cannot be: neither counts, its name says the rank"
    notes.append(Note(id="rank-mismatch", severity="warning", file=file, text=text))
    return None, None


def _profiler_messages(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the profiler logged as errors and warnings, and of its other lines the one that tells of an end."""
    lists = {key: lines for key in _LOG_KEYS if isinstance(lines := values.get(key), list)}
    return tuple(
        _LOG_PREFIX.sub("", line)
        for key, lines in lists.items()
        for line in lines
        if isinstance(line, str) and (key != "INFO" or _STOPPED_EARLY.search(line))
    )


def _metadata(text: bytes | None, file: str, notes: list[Note]) -> CaptureMetadata | None:
    if text is None:
        return None
    try:
        metadata = msgspec.json.decode(text, type=CaptureMetadata)
    except (ValueError, RecursionError) as error:
        notes.append(_unreadable(file, METADATA_KEY, error))
        return None
    if metadata.version > METADATA_VERSION:
        notes.append(
            Note(
                id="not-available",
                severity="warning",
                file=file,
                text=f"{file}: captured with version {metadata.version} of the metadata, this tracekit reads "
                f"{METADATA_VERSION}: what is new in it is ignored",
            )
        )
    if metadata.mesh is not None and not _is_consistent(metadata.mesh):
        what = f"{file}: the device mesh in the key {METADATA_KEY!r} contradicts itself; it is left out"
        notes.append(Note(id="not-available", severity="warning", file=file, text=what))
        metadata = replace(metadata, mesh=None)
    return metadata


def _is_consistent(mesh: Mesh) -> bool:
    return len(mesh.names) == len(mesh.shape) == len(mesh.coordinate) and all(
        0 <= index < size for index, size in zip(mesh.coordinate, mesh.shape, strict=True)
    )


def _process_groups(config: object, file: str, notes: list[Note]) -> tuple[ProcessGroup, ...]:
    """Return the groups whose ranks can be read, or that list none; a note about each of the others."""
    groups = []
    for entry in config if isinstance(config, list) else []:
        if not isinstance(entry, dict):
            continue
        name, listed = _text(entry.get("pg_name")) or "", entry.get("ranks")
        ranks = _ranks(listed)
        if listed and not ranks:
            text = f"{file}: the ranks of process group {name!r} cannot be read; its collectives say which they are"
            notes.append(Note(id="not-available", severity="warning", file=file, text=text))
            continue
        groups.append(
            ProcessGroup(
                name=name,
                description=_text(entry.get("pg_desc")) or "",
                backend=_text(entry.get("backend_config")) or "",
                ranks=ranks,
            )
        )
    return tuple(groups)


def _ranks(value: object) -> tuple[int, ...]:
    """Return a group's ranks; none if any of them is no rank or is there twice: the others would be another group."""
    ranks = [_integer(rank, 0, MAX_RANKS) for rank in value] if isinstance(value, list) else []
    known = dict.fromkeys(rank for rank in ranks if rank is not None)
    return tuple(known) if len(known) == len(ranks) else ()


def _integer(value: object, least: int, most: int) -> int | None:
    """Return an integer, or the integer that a text holds; None for other values and outside least to most."""
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if least <= value <= most else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _unreadable(file: str, key: str, error: BaseException) -> Note:
    text = f"{file}: the key {key!r} cannot be read ({error}); the events are used without it"
    return Note(id="not-available", severity="warning", file=file, text=text)
