"""Exports as torch writes them, and the metadata of a window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tracekit.capture.output.packing import CheckedExport
from tracekit.model.metadata import CaptureMetadata, Device, RecordedStep, Window


def kineto_text(*names: bytes) -> bytes:
    """Return an export as torch 2.13 writes it, with names that are not escaped."""
    events = [
        b'  {\n    "ph": "X",\n    "cat": "user_annotation",\n    "name": "%b",\n    "pid": 1,\n    "ts": 1.5\n  }'
        % name
        for name in names
    ]
    return b' {\n    "schemaVersion": 1,\n    "traceEvents": [\n' + b",\n".join(events) + b'\n  ],"traceName": "x" }'


def describe(checked: CheckedExport) -> CaptureMetadata:
    return CaptureMetadata(
        version=1,
        tracekit="0",
        torch="2",
        python="3",
        run_id="run",
        attempt=0,
        rank=0,
        local_rank=0,
        world_size=1,
        pid=1,
        host="host",
        host_id="id",
        device=Device(type="cpu", index=0, name="CPU"),
        window=Window(index=0, skip=0, warmup=0, partial=False),
        steps=[RecordedStep(step=4, start_ns=1, end_ns=2), RecordedStep(step=5, start_ns=2, end_ns=3)],
        notes=checked.notes,
    )


def exporting(text: bytes) -> Callable[[Path], None]:
    def export(file: Path) -> None:
        file.write_bytes(text)

    return export


def files_below(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.rglob("*") if file.is_file())
