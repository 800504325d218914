"""Whose trace is this? Answered from the beginning of a file, without decoding its events.

Comes in: a path. Goes out: a `TraceFile`. What the file says wins; its name only answers where the file is silent.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from tracekit.errors import InputError, NotATraceError
from tracekit.model.metadata import Manifest
from tracekit.read.columns import exact_nanoseconds
from tracekit.read.header import parse_header, parse_top_level
from tracekit.read.inflate import TextChunks

__all__ = ["MANIFEST_SUFFIX", "TraceFile", "from_manifest", "peek", "rank_in_name"]

MANIFEST_SUFFIX = ".manifest.json"
_LONGEST_HEADER_BYTES = 64 << 20
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
# tracekit rank-000003, torchtitan rank3_trace, HTA and Accelerate rank_3 and profile_3, others worker3
_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])(?:rank|worker|profile|process|trainer)[-_ ]?(\d{1,7})(?!\d)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class TraceFile:
    """One trace file and whose it is, as far as its beginning tells; None where it does not."""

    path: Path
    rank: int | None
    rank_from: Literal["metadata", "name", "nothing"]
    world_size: int | None = None
    run_id: str | None = None
    attempt: int = 0
    first_step: int | None = None
    process: str | None = None  # host and pid: the same process writes several windows
    start_ns: int | None = None
    unfinished: bool = False


def rank_in_name(path: Path) -> int | None:
    match = _RANK_IN_NAME.search(path.name)
    return int(match.group(1)) if match else None


def from_manifest(manifest_path: Path) -> TraceFile | None:
    """The trace that a manifest vouches for; None when the manifest cannot be read or its trace is missing."""
    try:
        manifest = msgspec.json.decode(manifest_path.read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None
    path = manifest_path.parent / Path(manifest.file).name
    if not path.is_file():
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


def peek(path: Path) -> TraceFile:
    """Read `path` up to its first events. Raises NotATraceError or InputError, as decoding would."""
    chunks = TextChunks(path)
    text, match = b"", None
    for chunk in chunks:
        text = (text + chunk).removeprefix(b"\xef\xbb\xbf").lstrip()
        match = _EVENTS_KEY.search(text)
        if match or (text and not text.startswith(b"{")) or len(text) > _LONGEST_HEADER_BYTES:
            break
    if not text:
        reason = chunks.notes[0].text if chunks.notes else f"{path.name}: the file is empty"
        raise NotATraceError(reason, hint="the job may have died while it wrote; record again")
    if match is None and not text.startswith(b"["):
        raise NotATraceError(
            f"{path.name}: not a trace (no traceEvents in it)", hint="give Chrome-trace JSON files of torch.profiler"
        )
    head = text[: match.start()].rstrip().removesuffix(b",") + b"}" if match else b"{}"
    header, _ = parse_header(parse_top_level(head), path.name)
    pid, start_ns = _first_event(text[match.end() if match else 1 :])
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
    named = rank_in_name(path)
    return TraceFile(
        path=path,
        rank=header.rank if header.rank is not None else named,
        rank_from="metadata" if header.rank is not None else "name" if named is not None else "nothing",
        world_size=header.world_size,
        process=None if pid is None else f"{header.host or ''}:{pid}",
        start_ns=None if start_ns is None else header.base_time_ns + start_ns,
        unfinished=path.suffix == ".tmp",
    )


def _first_event(text: bytes) -> tuple[object, int | None]:
    """pid and start of the first event."""
    try:
        event, _ = json.JSONDecoder().raw_decode(text[: 1 << 16].decode("utf-8", "replace").lstrip())
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(event, dict):
        return None, None
    ts = event.get("ts")
    return event.get("pid"), exact_nanoseconds(ts) if isinstance(ts, int | float | str) else None


def readable_reason(error: InputError) -> str:
    """Why a file is ignored, without the file's name in front."""
    return error.message.split(": ", 1)[-1]
