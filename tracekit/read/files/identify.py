"""Which rank and run a trace file belongs to, from its two ends, without decoding its events.

What the file says counts more than its name. The end is read only when the beginning lacks the rank or the time: Kineto
writes its base time there, some tools everything. A packed file must be inflated up to its end, which takes long. So
`identify_fast` skips the end if only the time is missing.

`is_of_probe` tells by its path whether the probe wrote a file into the folder of a run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from tracekit.errors import NotATraceError
from tracekit.model.metadata import MANIFEST_SUFFIX, MERGED_KEY, METADATA_KEY, Manifest
from tracekit.read.decode.event_array import no_events_error, read_head, tail_keys_text
from tracekit.read.decode.field_values import exact_nanoseconds
from tracekit.read.decode.metadata_keys import parse_header, parse_top_level
from tracekit.read.files.inflate import KEYS_BEHIND_BYTES, TextChunks, last_bytes
from tracekit.read.files.membership import Membership, membership_of
from tracekit.read.files.ranks import rank_in_name
from tracekit.read.files.storage import TracePath

RankSource = Literal["metadata", "groups", "name", "option", "nothing"]

EARLIEST_WALL_CLOCK_NS = 1_420_070_400 * 10**9
"""2015: before the first profiler that wrote these traces. An earlier start counts from a boot, not from 1970."""

_USUAL_FIRST_EVENTS_BYTES = 32 << 10
_FIRST_EVENTS_BYTES = 256 << 10  # names of processes and threads come first
_NO_EVENT = re.compile(rb"\s*(\]|\Z)")
_SEPARATORS = re.compile(r"[\s,]*")
# The pid of these events is the number of a device, or no process at all.
_OFF_HOST = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "Trace", "overhead"})
RUN_FOLDER = r"/(?P<run_id>[A-Za-z0-9_-]{1,64})/attempt-(?P<attempt>\d{1,9})/step-(?P<step>\d{9})(/rank-\d+xxx)?/"
"""The end of the path of a folder of traces, with the slashes around it."""
_UNFINISHED_CAPTURE = re.compile(RUN_FOLDER + r"\.rank-(?P<rank>\d{6,9})\.(?P<process>[^/]+?)(\.gz)?\.tmp$")
_FILE = re.compile(RUN_FOLDER + r"[^/]+$")


@dataclass(frozen=True, kw_only=True)
class TraceFile:
    """One trace file, and what it says about itself without decoding; None where it says nothing.

    Attributes:
        path: Where it is.
        rank: Of the file. Discovery gives one to files that have none.
        rank_from: Where `rank` comes from. "nothing": it is a guess, and a decoded trace may say another one.
        world_size: Of the job.
        run_id: Of a capture by tracekit.
        attempt: Of a capture by tracekit.
        first_step: Of a capture by tracekit.
        process: Host and pid; a process may write several windows.
        start_ns: When its first event began.
        relative_start_ns: The same, counted from a base time at the end of the file, which was not read. Kineto's base
            time is the same for months.
        first_ts_ns: The same as the event has it, without a base time.
        device_names: Of all devices that the file lists.
        unfinished: The job died while it wrote the file.
        membership: What its events say of the rank; None where the file itself names it.
    """

    path: TracePath
    rank: int | None
    rank_from: RankSource
    world_size: int | None = None
    run_id: str | None = None
    attempt: int = 0
    first_step: int | None = None
    process: str | None = None
    start_ns: int | None = None
    relative_start_ns: int | None = None
    first_ts_ns: int | None = None
    device_names: tuple[str, ...] = ()
    unfinished: bool = False
    membership: Membership | None = None

    @property
    def known_world_size(self) -> int:
        """The number of ranks, at least: by the header, else by the groups; 0 if neither says it."""
        return self.world_size or (self.membership.world_size if self.membership is not None else 0)

    @property
    def wall_clock_ns(self) -> int | None:
        """The start, if it can be compared with the starts of other hosts."""
        return self.start_ns if self.start_ns is not None and self.start_ns >= EARLIEST_WALL_CLOCK_NS else None


def from_manifest(manifest_path: TracePath) -> TraceFile | None:
    """Return the trace that a manifest describes, which need not exist; None if the manifest cannot be read."""
    try:
        manifest = msgspec.json.decode(manifest_path.read_bytes(), type=Manifest)
        path = manifest_path.with_name(Path(manifest.file).name)
    except (OSError, ValueError):  # ValueError: not JSON, no manifest, or nothing that names a file
        return None
    return TraceFile(
        path=path,
        rank=manifest.rank,
        rank_from="metadata",
        world_size=manifest.world_size,
        run_id=manifest.run_id,
        attempt=manifest.attempt,
        first_step=manifest.steps[0],
        process=manifest.host,
    )


def identify(path: TracePath) -> TraceFile:
    """Identify a file by its two ends. Raises NotATraceError or InputError, as decoding would."""
    return _with_end(path, _read_beginning(path))


def identify_fast(path: TracePath) -> TraceFile:
    """`identify`, but without the end of a packed file if the beginning says everything but the time."""
    beginning = _read_beginning(path)
    if beginning.end_may_say_more and beginning.is_packed and "distributedInfo" in beginning.keys:
        file = _trace_file(path, beginning.keys, beginning)
        if file.rank_from == "metadata" and file.world_size is not None:
            return replace(file, start_ns=None, relative_start_ns=beginning.relative_start_ns)
    return _with_end(path, beginning)


@dataclass(frozen=True, kw_only=True)
class _Beginning:
    """The beginning of a file: top-level keys, and process and start of the first event."""

    keys: dict[str, bytes]
    pid: object
    relative_start_ns: int | None
    end_may_say_more: bool
    is_packed: bool


def _read_beginning(path: TracePath) -> _Beginning:
    chunks = TextChunks(path, _USUAL_FIRST_EVENTS_BYTES)
    stream = iter(chunks)
    head = read_head(stream, chunks)
    rest = head.rest
    first = _FirstEvent()
    for enough in (_USUAL_FIRST_EVENTS_BYTES, _FIRST_EVENTS_BYTES):
        while len(rest) < enough and (chunk := next(stream, b"")):
            rest += chunk
        first = _first_event(rest)
        if first.is_certain:
            break
    if _NO_EVENT.match(rest):
        raise no_events_error(chunks)
    keys = parse_top_level(head.keys)
    if MERGED_KEY in keys:
        raise _merged_error(path, "a merged trace, which tracekit wrote")
    return _Beginning(
        keys=keys,
        pid=first.pid,
        relative_start_ns=first.start_ns,
        end_may_say_more=head.is_object and not _says_enough(keys, first.start_ns),
        is_packed=chunks.is_packed,
    )


def _merged_error(path: TracePath, reason: str) -> NotATraceError:
    hint = "give the files that it was merged from"
    return NotATraceError(f"{path.name}: {reason}", hint=hint, reason=reason, kind="ignored-file")


def _with_end(path: TracePath, beginning: _Beginning) -> TraceFile:
    """Identify a file by its beginning, and by its end if that may say more."""
    keys = beginning.keys
    if beginning.end_may_say_more:
        keys = keys | parse_top_level(tail_keys_text(last_bytes(path, KEYS_BEHIND_BYTES)))
    return _trace_file(path, keys, beginning)


def _trace_file(path: TracePath, keys: Mapping[str, bytes], beginning: _Beginning) -> TraceFile:
    pid, start_ns = beginning.pid, beginning.relative_start_ns
    header, _ = parse_header(keys, path.name)
    metadata = header.metadata
    if metadata is not None:
        return TraceFile(
            path=path,
            rank=metadata.rank,
            rank_from="metadata",
            world_size=metadata.world_size,
            run_id=metadata.run_id,
            attempt=metadata.attempt,
            first_step=metadata.steps[0].step if metadata.steps else None,
            process=f"{metadata.host}:{metadata.pid}",
            start_ns=metadata.steps[0].start_ns if metadata.steps else None,
            unfinished=path.suffix == ".tmp",
        )
    if (unfinished := _unfinished_capture(path)) is not None:
        return replace(unfinished, start_ns=None if start_ns is None else header.base_time_ns + start_ns)
    membership = membership_of(path) if header.rank is None else None
    if membership is not None and membership.processes > 1:
        raise _merged_error(path, f"a merged trace, of {membership.processes} processes")
    rank, rank_from = _rank(path, header.rank, frozenset() if membership is None else membership.candidates)
    return TraceFile(
        path=path,
        rank=rank,
        rank_from=rank_from,
        world_size=header.world_size,
        process=None if pid is None else f"{header.host or ''}:{pid}",
        start_ns=None if start_ns is None else header.base_time_ns + start_ns,
        first_ts_ns=start_ns,
        device_names=header.device_names,
        unfinished=path.suffix == ".tmp",
        membership=membership,
    )


def _rank(path: TracePath, own: int | None, candidates: frozenset[int]) -> tuple[int | None, RankSource]:
    """Return the rank of a file, and where it comes from. candidates: that its groups allow, none if all."""
    if own is not None:
        return own, "metadata"
    if len(candidates) == 1:
        return min(candidates), "groups"
    named = rank_in_name(path)
    return (named, "name") if named is not None and named in (candidates or {named}) else (None, "nothing")


def _unfinished_capture(path: TracePath) -> TraceFile | None:
    """Identify the temporary file of a capture that was killed before it wrote its metadata, by its path alone."""
    match = _UNFINISHED_CAPTURE.search(path.absolute().as_posix())
    if match is None:
        return None
    return TraceFile(
        path=path,
        rank=int(match["rank"]),
        rank_from="name",
        run_id=match["run_id"],
        attempt=int(match["attempt"]),
        first_step=int(match["step"]),
        process=match["process"],
        unfinished=True,
    )


def _says_enough(keys: Mapping[str, bytes], start_ns: int | None) -> bool:
    """Whether the keys before the events say the rank and the time of the trace."""
    if METADATA_KEY in keys:
        return True
    on_wall_clock = start_ns is None or start_ns >= EARLIEST_WALL_CLOCK_NS
    return "distributedInfo" in keys and ("baseTimeNanoseconds" in keys or on_wall_clock)


@dataclass(frozen=True)
class _FirstEvent:
    """Process and start of an event. `is_certain`: it is one of a host thread, and so no later event replaces it."""

    pid: object = None
    start_ns: int | None = None
    is_certain: bool = False


def _first_event(text: bytes) -> _FirstEvent:
    """Return the first event of a host thread that has a start; what other events say if there is none."""
    decoder = json.JSONDecoder()
    events = text[:_FIRST_EVENTS_BYTES].decode("utf-8", "replace")
    position = 0
    fallback = _FirstEvent()
    while True:
        separators = _SEPARATORS.match(events, position)
        try:
            event, position = decoder.raw_decode(events, separators.end() if separators else position)
        except (ValueError, RecursionError):
            return fallback
        if not isinstance(event, dict) or event.get("ph") == "M":  # its ts, if any, may be 0
            continue
        ts, category = event.get("ts"), event.get("cat")
        start_ns = exact_nanoseconds(ts) if isinstance(ts, int | float | str) else None
        # Kineto's marks "Iteration Start" and "Record Window End" have no category, and no process: "Traces" and "".
        on_host = isinstance(category, str) and category not in _OFF_HOST
        pid = event.get("pid") if on_host or (category is None and event.get("ph") != "i") else None
        if start_ns is not None and on_host:
            return _FirstEvent(pid, start_ns, True)
        fallback = _FirstEvent(
            pid if fallback.pid is None else fallback.pid,
            start_ns if fallback.start_ns is None else fallback.start_ns,
        )


def is_of_probe(file: Path) -> bool:
    """Return whether a file has a path that the probe gives to traces, and the probe's manifest beside it."""
    if _FILE.search(file.absolute().as_posix()) is None:
        return False
    return file.with_name(file.name.partition(".")[0] + MANIFEST_SUFFIX).is_file()
