"""The files of a run as they are, with a manifest that tells Perfetto's trace processor how their clocks relate.

Comes in: a `Run`, whose files are read twice. Goes out: a ZIP archive of `perfetto_manifest.json` and every file's
text, byte for byte, for Perfetto 58 or newer; older ones open it too, and take all clocks for one. The format:
https://perfetto.dev/docs/reference/perfetto-manifest

Packed files are unpacked into the archive, because Perfetto accepts a clock for a plain file alone. It takes a file's
`ts` without `baseTimeNanoseconds`: its reading is nanoseconds since that base. A manifest holds one offset a file, here
from that reading to the run's clock (Unix epoch), the middle of those that its events need. Drift, and steps of a
clock, cannot be said: what they leave, at most, stands next to the offset, as does the uncertainty of the clock itself.
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
from tracekit.analysis.clocks.align import on_run_clock
from tracekit.analysis.pool.workers import LOST, Progress, map_ranks
from tracekit.errors import OutputError
from tracekit.model.run import ClockModel, Run
from tracekit.read.decode.decoder import decode
from tracekit.read.files.inflate import TextChunks
from tracekit.read.files.storage import parse_path
from tracekit.render.output import new_file, refuse_input

__all__ = ["MANIFEST_NAME", "ClockedFile", "ManifestArchive", "manifest_of", "write_manifest"]

MANIFEST_NAME = "perfetto_manifest.json"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # so that equal runs make equal archives


@dataclass(frozen=True, kw_only=True)
class ClockedFile:
    """One file of a rank. `offset_ns`: to be added to its own reading; `first_ns`: where its first event is then.
    `left_ns`: how far an event is then at most from where the rank's clock model puts it. `complete` is False for a
    file that ended before its events did.
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
    """What was written. `left_out`: files that are cut off, which Perfetto would refuse together with all others."""

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
    """Write the archive to `output`; `jobs` is that of `load`.

    Raises OutputError when it cannot be written, no file is whole, one is too large for an archive or a worker dies;
    InputError when a file of the run has become unreadable.
    """
    output = Path(output)
    refuse_input(output, run)
    calls = [
        (path, f"rank-{summary.rank:06d}{f'.{number}' if number else ''}.json", summary.rank, summary.host, clock)
        for summary, clock in zip(run.ranks, run.clocks, strict=True)
        for number, path in enumerate(summary.files)
    ]
    outcomes = map_ranks(_clocked, calls, jobs=jobs, progress=progress)
    if LOST in outcomes:
        message = f"{output}: the worker that read {calls[outcomes.index(LOST)][0]} died, twice"
        raise OutputError(message, hint="it may have run out of memory: try --jobs 1, or leave it out with --ranks")
    found = [outcome for outcome in outcomes if outcome is not LOST]
    files = _from_zero([file for file in found if file.complete])
    if not files:
        raise OutputError(
            f"{output}: no file of the run is whole", hint="use another --format, which takes cut off ones"
        )
    with new_file(output, force=force) as stream:
        _write_archive(stream, manifest_of(files, run.run_id), files, output)
    return ManifestArchive(
        path=output,
        files=tuple(files),
        left_out=tuple(file for file in found if not file.complete),
        size_bytes=output.stat().st_size,
    )


def manifest_of(files: list[ClockedFile], run_id: str | None) -> dict[str, Any]:
    """The manifest as JSON values. Each rank is a machine, as pids and devices of different ranks may be the same."""
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
            # Perfetto skips what it does not know.
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
    """Moved together when one begins before zero: Perfetto drops what lies there."""
    below_ns = min((file.first_ns for file in files), default=0)
    if below_ns >= 0:
        return files
    return [replace(file, offset_ns=file.offset_ns - below_ns, first_ns=file.first_ns - below_ns) for file in files]


def _clocked(path: str, member: str, rank: int, host: str | None, clock: ClockModel) -> ClockedFile:
    """In a worker."""
    trace = decode(parse_path(path))
    time_ns = np.concatenate([trace.events.start_ns, trace.events.end_ns])
    shift_ns = on_run_clock(time_ns, clock) - time_ns
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
        archive.writestr(_member(MANIFEST_NAME), json.dumps(manifest, indent=1, ensure_ascii=False))
        for file in files:
            try:
                with archive.open(_member(file.member), "w") as text:
                    for chunk in TextChunks(parse_path(file.source)):
                        text.write(chunk)
            except (
                RuntimeError
            ) as error:  # 2 GiB of text: what lies beyond is another format, which Perfetto cannot read
                hint = "use another --format, or record fewer steps"
                raise OutputError(f"{output}: {file.source} is too large for an archive", hint=hint) from error


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, date_time=_LONG_AGO)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    return member
