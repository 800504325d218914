"""Turns torch's export into a complete trace file and its manifest, or leaves no file at all.

The export is verified, and unescaped annotation names are repaired. The metadata is inserted at the front. The trace is
compressed beside its target, flushed to the disk and renamed; then the manifest is written. If anything fails, no file
of this process stays. There is at most one uncompressed copy at a time, in memory or on the disk.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from tracekit.capture.output.disk import DiskBudget
from tracekit.capture.output.event_counts import EventCounts, count_events
from tracekit.capture.output.export_text import read_verified, with_metadata
from tracekit.capture.output.places import Place, publish
from tracekit.errors import OutputError
from tracekit.model.metadata import METADATA_VERSION, CaptureMetadata, Manifest, RecordingNote

GZIP_LEVEL = 3  # the last one of zlib that is fast: level 6 takes twice the time for files that are a quarter smaller

__all__ = ["CheckedExport", "export_trace", "write_trace"]


class CheckedExport(msgspec.Struct, frozen=True):
    """What is known of an export once it has been read: its number of events, the notes of repairs."""

    events: int
    notes: list[RecordingNote]
    counts: EventCounts


def export_trace(place: Place, export: Callable[[Path], None], budget: DiskBudget) -> None:
    """Let `export` write plain Chrome JSON to `place.export`. Raises OutputError if disk, folder or torch refuse."""
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
        place.remove_scratch()
        budget.check_free_space(place.folder)
        if place.is_taken:
            raise FileExistsError(errno.EEXIST, "File exists", str(place.packed))
        export(place.export)
    except BaseException as error:
        place.remove_scratch()
        if isinstance(error, (OSError, RuntimeError)):
            raise _refusal(place, error) from error
        raise


def write_trace(place: Place, describe: Callable[[CheckedExport], CaptureMetadata], budget: DiskBudget) -> None:
    """Write the trace of the export at `place`; `describe` returns its metadata. Raises OutputError."""
    try:
        text, events, notes = read_verified(place.export)
        checked = CheckedExport(events=events, notes=notes, counts=count_events(place.export))
        place.export.unlink()
        budget.count_written(_publish(place, text, events, describe(checked), budget))
    except (OSError, RuntimeError) as error:
        raise _refusal(place, error) from error
    finally:
        place.remove_scratch()


def _publish(place: Place, text: bytes, events: int, metadata: CaptureMetadata, budget: DiskBudget) -> int:
    """Write trace and manifest; return the bytes of the trace. Raises OSError and OutputError."""
    target = place.packed
    digest, size_bytes = _write(place.unfinished_trace, with_metadata(text, metadata, target.name))
    budget.check(size_bytes)
    budget.check_free_space(place.folder)
    manifest = Manifest(
        version=METADATA_VERSION,
        run_id=metadata.run_id,
        attempt=metadata.attempt,
        rank=metadata.rank,
        world_size=metadata.world_size,
        host=metadata.host,
        file=target.name,
        bytes=size_bytes,
        sha256=digest,
        events=events,
        # A server of remote calls has no steps; there the number of the window distinguishes recordings.
        steps=(metadata.steps[0].step, metadata.steps[-1].step)
        if metadata.steps
        else (metadata.window.index, metadata.window.index),
    )
    with _synced_file(place.unfinished_manifest) as stream:
        stream.write(msgspec.json.encode(manifest) + b"\n")
    publish(place.unfinished_trace, target)
    try:
        publish(place.unfinished_manifest, place.manifest)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return size_bytes


def _refusal(place: Place, error: Exception) -> OutputError:
    return OutputError(f"the trace could not be written to {place.folder}: {error}", hint="see the path option")


def _write(file: Path, parts: list[bytes | memoryview]) -> tuple[str, int]:
    """Write `parts`, compressed and flushed to the disk; return SHA-256 and size of the file."""
    with _synced_file(file) as stream, gzip.GzipFile("", "wb", GZIP_LEVEL, stream, mtime=0) as packed:
        packed.writelines(parts)
    with file.open("rb") as written:
        return hashlib.file_digest(written, "sha256").hexdigest(), file.stat().st_size


@contextlib.contextmanager
def _synced_file(file: Path) -> Iterator[BinaryIO]:
    """Open a new file that is flushed to the disk when the block ends."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(descriptor, "wb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
