"""Pack the unchanged files of a run with a manifest, which tells Perfetto's trace processor how their clocks relate.

The archive is a ZIP file of `perfetto_manifest.json` and the text of every file, for Perfetto 58 or newer. Older
versions open it too, but assume that all clocks agree. The files of the run are read twice. The format:
https://perfetto.dev/docs/reference/perfetto-manifest

Compressed files are decompressed into the archive, because Perfetto accepts a clock for plain files only. Perfetto
reads a file's `ts` without `baseTimeNanoseconds`, so the file's clock counts nanoseconds since that base.

A manifest holds one offset for each file, here from the file's clock to the run's clock (Unix epoch). It cannot express
drift or jumps of a clock. So the offset is the middle of the offsets that the file's events need. The manifest also
holds the largest remaining error, and the uncertainty of the clock itself.
"""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tracekit import __version__
from tracekit.analysis.pool.workers import LOST, Progress, map_ranks
from tracekit.errors import OutputError, UsageError
from tracekit.model.clocks import ClockModel
from tracekit.model.run import Run
from tracekit.model.safe_text import unicode_text
from tracekit.read.decode.decoder import decode
from tracekit.read.files.inflate import TextChunks
from tracekit.read.files.storage import parse_path
from tracekit.render.output import new_file

__all__ = ["MANIFEST_NAME", "ClockedFile", "ManifestArchive", "manifest_of", "write_manifest"]

MANIFEST_NAME = "perfetto_manifest.json"
_MEMBER_DATE = (1980, 1, 1, 0, 0, 0)  # a constant, so that equal runs make equal archives


@dataclass(frozen=True, kw_only=True)
class ClockedFile:
    """One file of a rank, and how its clock is corrected.

    Attributes:
        source: Path of the file.
        member: Name in the archive.
        rank: The rank.
        host: Name of its host.
        clock: The rank's clock model.
        offset_ns: Offset to add to the file's times.
        first_ns: Time of the first event with that offset.
        left_ns: Largest remaining difference between an event and the clock model.
        complete: False if the file is cut off.
    """

    source: str
    member: str
    rank: int
    host: str | None
    clock: ClockModel
    offset_ns: int
    first_ns: int
    left_ns: int
    complete: bool


@dataclass(frozen=True, kw_only=True)
class ManifestArchive:
    """An archive that was written.

    Attributes:
        path: The archive.
        files: Files in the archive.
        left_out: Files that are cut off. With them Perfetto would refuse the whole archive.
        size_bytes: Size of the archive.
    """

    path: Path
    files: tuple[ClockedFile, ...]
    left_out: tuple[ClockedFile, ...]
    size_bytes: int


def write_manifest(
    run: Run,
    output: str | os.PathLike[str],
    *,
    force: bool = False,
    jobs: int | None = 1,
    progress: Progress | None = None,
) -> ManifestArchive:
    """Write the archive to `output`. `jobs`: as for `load`.

    Raises OutputError if it cannot be written, if no file is complete, if a file is too large for an archive, or if a
    worker dies. Raises InputError if a file of the run has become unreadable, and UsageError for an anonymised run.
    """
    output = Path(output)
    if run.pseudonyms is not None:
        raise UsageError("the files of a run are packed as they are, with their names", hint="choose another --format")
    calls = [
        (path, f"rank-{summary.rank:06d}{f'.{number}' if number else ''}.json", summary.rank, summary.host, clock)
        for summary, clock in zip(run.ranks, run.clocks, strict=True)
        for number, path in enumerate(summary.files)
    ]
    outcomes = map_ranks(_clocked, calls, jobs=jobs, progress=progress)
    if LOST in outcomes:
        message = f"{output}: the worker that read {calls[outcomes.index(LOST)][0]} died, twice"
        raise OutputError(message, hint="it may have run out of memory: try --jobs 1, or leave it out with --ranks")
    clocked = [outcome for outcome in outcomes if outcome is not LOST]
    files = _from_zero([file for file in clocked if file.complete])
    if not files:
        raise OutputError(
            f"{output}: all files of the run are cut off", hint="use another --format, which accepts them"
        )
    with new_file(output, force=force) as stream:
        _write_archive(stream, manifest_of(files, run.run_id), files, output)
    return ManifestArchive(
        path=output,
        files=tuple(files),
        left_out=tuple(file for file in clocked if not file.complete),
        size_bytes=output.stat().st_size,
    )


def manifest_of(files: list[ClockedFile], run_id: str | None) -> dict[str, Any]:
    """Return the manifest as JSON values. Each rank is a machine, because ranks may have equal pids and devices."""
    trace_time = {"clock": "REALTIME", "file": files[0].member}
    attributes: dict[str, str | int] = {
        "tracekit.version": __version__,
        "tracekit.left_by_drift_ns": max(file.left_ns for file in files),
    }
    errors_ns = [file.clock.error_ns for file in files]
    if None not in errors_ns:
        attributes["tracekit.clock_error_ns"] = max(error_ns for error_ns in errors_ns if error_ns is not None)
    if run_id is not None:
        attributes["tracekit.run_id"] = run_id
    entries = [
        {
            "path": file.member,
            "machine": {"name": f"rank {file.rank}{f' · {file.host}' if file.host else ''}"},
            "clocks": {"sync_to": trace_time, "offset_ns": file.offset_ns},
            # Perfetto ignores keys that it does not know.
            "tracekit": {
                "source": parse_path(file.source).name,
                "clock": file.clock.method,
                "clock_error_ns": file.clock.error_ns,
                "drift_ppm": file.clock.drift_ppm,
                "left_by_drift_ns": file.left_ns,
            },
        }
        for file in files
    ]
    manifest = {"version": 1, "trace_time": trace_time, "attributes": attributes, "files": entries}
    return {"perfetto_manifest": manifest}


def _from_zero(files: list[ClockedFile]) -> list[ClockedFile]:
    """Return the files, all shifted together if one begins before time zero, where Perfetto drops events."""
    below_ns = min((file.first_ns for file in files), default=0)
    if below_ns >= 0:
        return files
    return [replace(file, offset_ns=file.offset_ns - below_ns, first_ns=file.first_ns - below_ns) for file in files]


def _clocked(path: str, member: str, rank: int, host: str | None, clock: ClockModel) -> ClockedFile:
    """Read a file, in a worker, and return the offset that its events need."""
    trace = decode(parse_path(path))
    time_ns = np.concatenate([trace.events.start_ns, trace.events.end_ns])
    shift_ns = clock.to_run(time_ns) - time_ns
    low_ns, high_ns = (int(shift_ns.min()), int(shift_ns.max())) if len(shift_ns) else (-clock.offset_ns,) * 2
    middle_ns = (low_ns + high_ns) // 2
    return ClockedFile(
        source=path,
        member=member,
        rank=rank,
        host=host,
        clock=clock,
        offset_ns=trace.header.base_time_ns + middle_ns,
        first_ns=int(time_ns.min(initial=np.iinfo(np.int64).max >> 1)) + middle_ns,
        left_ns=high_ns - middle_ns,
        complete=trace.complete,
    )


def _write_archive(stream: BinaryIO, manifest: dict[str, Any], files: list[ClockedFile], output: Path) -> None:
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
        text_of_manifest = unicode_text(json.dumps(manifest, indent=1, ensure_ascii=False))
        archive.writestr(_member(MANIFEST_NAME), text_of_manifest)
        for file in files:
            try:
                with archive.open(_member(file.member), "w") as text:
                    for chunk in TextChunks(parse_path(file.source)):
                        text.write(chunk)
            except RuntimeError as error:  # more than 2 GiB would take ZIP64, which Perfetto cannot read
                hint = "use another --format, or record fewer steps"
                raise OutputError(f"{output}: {file.source} is too large for an archive", hint=hint) from error


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, date_time=_MEMBER_DATE)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    return member
