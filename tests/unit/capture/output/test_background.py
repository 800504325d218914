"""Traces are written while the training goes on: small ones on a thread, large ones in a process of their own."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path

import pytest

from tests.unit.capture.output.exports import describe, exporting, files_below, kineto_text
from tracekit.capture.output import background
from tracekit.capture.output.background import BackgroundWriter, ExportedTrace
from tracekit.capture.output.disk import DiskBudget
from tracekit.capture.output.packer_process import PackerProcess
from tracekit.capture.output.packing import CheckedExport, export_trace
from tracekit.capture.output.places import Place
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
    place = Place(folder, 0)
    export_trace(place, exporting(kineto_text(*names)), budget)
    return ExportedTrace(place=place, describe=describe, budget=budget)  # type: ignore[arg-type]


@pytest.mark.parametrize("least_bytes", [0, 10**9])
def test_a_trace_and_its_manifest_are_written_and_nothing_else(
    tmp_path: Path, writer: BackgroundWriter, errors: list[str], monkeypatch: pytest.MonkeyPatch, least_bytes: int
) -> None:
    """In another process, and on the thread."""
    monkeypatch.setattr(background, "PROCESS_BYTES", least_bytes)

    writer.submit(exported(tmp_path, b'a"b', b"c"))
    writer.finish()

    assert files_below(tmp_path) == ["rank-000000.json.gz", "rank-000000.manifest.json"]
    trace = json.loads(gzip.decompress((tmp_path / "rank-000000.json.gz").read_bytes()))
    assert [event["name"] for event in trace["traceEvents"]] == ['a"b', "c"]
    assert [note["kind"] for note in trace["tracekit"]["notes"]] == ["capture"]
    assert json.loads((tmp_path / "rank-000000.manifest.json").read_bytes())["events"] == 2
    assert errors == []
    assert writer.is_idle


@pytest.mark.parametrize("least_bytes", [0, 10**9])
def test_an_export_that_is_no_trace_is_said_once_and_leaves_no_file(
    tmp_path: Path, writer: BackgroundWriter, errors: list[str], monkeypatch: pytest.MonkeyPatch, least_bytes: int
) -> None:
    monkeypatch.setattr(background, "PROCESS_BYTES", least_bytes)
    broken = exported(tmp_path / "broken", b"a")
    broken.place.export.write_bytes(b"{")

    writer.submit(broken)
    writer.submit(exported(tmp_path / "next", b"a"))
    writer.finish()

    assert len(errors) == 1
    assert "not valid JSON" in errors[0]
    assert writer.has_failed
    assert files_below(tmp_path) == []


def test_the_total_of_bytes_holds_for_a_trace_packed_by_another_process(
    tmp_path: Path, writer: BackgroundWriter, errors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "PROCESS_BYTES", 0)

    writer.submit(exported(tmp_path, b"a", budget=DiskBudget(max_bytes=10)))
    writer.finish()

    assert len(errors) == 1
    assert "max_bytes=10" in errors[0]
    assert files_below(tmp_path) == []


def test_when_the_program_fails_the_rest_is_published_uncompressed(
    tmp_path: Path, writer: BackgroundWriter, errors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a process that packs, and waits for the metadata: it is killed, and the thread takes over."""
    monkeypatch.setattr(background, "PROCESS_BYTES", 0)
    asked = threading.Event()
    failing = threading.Event()

    def describe_later(export: CheckedExport) -> CaptureMetadata:
        asked.set()
        failing.wait()
        return describe(export)

    writer.submit(exported(tmp_path, b"a", describe=describe_later))
    asked.wait()
    writer.hurry()
    failing.set()
    writer.finish()

    assert files_below(tmp_path) == ["rank-000000.json", "rank-000000.manifest.json"]
    assert json.loads((tmp_path / "rank-000000.json").read_bytes())["tracekit"]["steps"][0]["step"] == 4
    assert json.loads((tmp_path / "rank-000000.manifest.json").read_bytes())["file"] == "rank-000000.json"
    assert errors == []


def test_what_a_failing_program_may_keep_only_if_it_is_small_is_compressed(
    tmp_path: Path, writer: BackgroundWriter, errors: list[str]
) -> None:
    writer.hurry()
    writer.submit(exported(tmp_path, *([b"a"] * 2000), budget=DiskBudget(max_bytes=20_000)))
    writer.finish()

    assert files_below(tmp_path) == ["rank-000000.json.gz", "rank-000000.manifest.json"]
    assert errors == []


@pytest.mark.parametrize("published", [0, 1, 2])
def test_a_process_that_dies_loses_nothing(
    tmp_path: Path,
    writer: BackgroundWriter,
    errors: list[str],
    monkeypatch: pytest.MonkeyPatch,
    published: int,
) -> None:
    """It dies before it has published anything, between trace and manifest, and after both."""
    monkeypatch.setattr(background, "PROCESS_BYTES", 0)
    publish = PackerProcess.publish

    def die(process: PackerProcess, metadata: CaptureMetadata) -> int:
        if published:
            publish(process, metadata)
        if published == 1:
            (tmp_path / "rank-000000.manifest.json").unlink()
            export_again.place.export.write_bytes(kineto_text(b"a"))
        process.kill()
        return publish(process, metadata)

    monkeypatch.setattr(PackerProcess, "publish", die)
    export_again = exported(tmp_path, b"a")
    writer.submit(export_again)
    writer.finish()

    assert files_below(tmp_path) == ["rank-000000.json.gz", "rank-000000.manifest.json"]
    assert errors == []


def test_without_an_interpreter_the_thread_packs(
    tmp_path: Path, writer: BackgroundWriter, errors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "PROCESS_BYTES", 0)
    monkeypatch.setattr("tracekit.capture.output.packer_process.sys.executable", str(tmp_path / "nothing"))

    writer.submit(exported(tmp_path, b"a"))
    writer.finish()

    assert files_below(tmp_path) == ["rank-000000.json.gz", "rank-000000.manifest.json"]
    assert errors == []


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
        export_trace(Place(tmp_path, 0), refuse, DiskBudget())

    assert files_below(tmp_path) == []
