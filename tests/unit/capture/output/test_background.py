"""Traces are written while the training goes on, on a thread."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.unit.capture.output.exports import describe, exporting, files_below, kineto_text
from tracekit.capture.output.packing import CheckedExport, export_trace
from tracekit.capture.output.paths import DiskBudget, RecordingPaths
from tracekit.capture.window_writer import BackgroundWriter, ExportedTrace
from tracekit.errors import OutputError
from tracekit.model.metadata import CaptureMetadata


@pytest.fixture
def errors() -> list[str]:
    return []


@pytest.fixture
def writer(errors: list[str]) -> BackgroundWriter:
    return BackgroundWriter(errors.append)


def exported(
    folder: Path, *names: bytes, describe: object = describe, budget: DiskBudget | None = None
) -> ExportedTrace:
    budget = budget or DiskBudget()
    paths = RecordingPaths(folder, 0)
    export_trace(paths, exporting(kineto_text(*names)), budget)
    return ExportedTrace(paths=paths, describe=describe, budget=budget)  # type: ignore[arg-type]


def test_a_trace_and_its_manifest_are_written_and_nothing_else(
    tmp_path: Path, writer: BackgroundWriter, errors: list[str]
) -> None:
    writer.submit(exported(tmp_path, b'a"b', b"c"))
    writer.finish()

    assert files_below(tmp_path) == ["rank-000000.json.gz", "rank-000000.manifest.json"]
    trace = json.loads(gzip.decompress((tmp_path / "rank-000000.json.gz").read_bytes()))
    assert [event["name"] for event in trace["traceEvents"]] == ['a"b', "c"]
    assert [note["kind"] for note in trace["tracekit"]["notes"]] == ["capture"]
    assert json.loads((tmp_path / "rank-000000.manifest.json").read_bytes())["events"] == 2
    assert errors == []
    assert writer.is_idle


def test_an_export_that_is_no_trace_is_said_once_and_leaves_no_file(
    tmp_path: Path, writer: BackgroundWriter, errors: list[str]
) -> None:
    broken = exported(tmp_path / "broken", b"a")
    broken.paths.export.write_bytes(b"{")

    writer.submit(broken)
    writer.submit(exported(tmp_path / "next", b"a"))
    writer.finish()

    assert len(errors) == 1
    assert "not valid JSON" in errors[0]
    assert writer.has_failed
    assert files_below(tmp_path) == []


def test_an_action_for_later_follows_what_was_submitted(tmp_path: Path, writer: BackgroundWriter) -> None:
    found: list[list[str]] = []
    writer.submit(exported(tmp_path, b"a"))
    writer.when_idle(lambda: found.append(files_below(tmp_path)))
    writer.finish()
    writer.when_idle(lambda: found.append([]))

    assert found == [["rank-000000.json.gz", "rank-000000.manifest.json"], []]


def test_an_error_of_the_metadata_is_said(tmp_path: Path, writer: BackgroundWriter, errors: list[str]) -> None:
    def fail(_: CheckedExport) -> CaptureMetadata:
        raise ZeroDivisionError("planted")

    writer.submit(exported(tmp_path, b"a", describe=fail))
    writer.finish()

    assert errors == ["ZeroDivisionError: planted"]
    assert files_below(tmp_path) == []


def test_an_export_that_torch_refuses_leaves_no_file(tmp_path: Path) -> None:
    def refuse(file: Path) -> None:
        file.write_bytes(b"half")
        raise RuntimeError("no trace")

    with pytest.raises(OutputError, match="no trace"):
        export_trace(RecordingPaths(tmp_path, 0), refuse, DiskBudget())

    assert files_below(tmp_path) == []
