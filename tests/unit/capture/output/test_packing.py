"""A trace file is complete or absent: repair of torch's export, folders, failures."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.unit.capture.output.exports import describe, exporting, files_below, kineto_text
from tracekit.capture.output import packing, paths
from tracekit.capture.output.packing import export_trace, repair, write_trace
from tracekit.capture.output.paths import DiskBudget, RecordingPaths, trace_folder, unused_run_id
from tracekit.errors import OutputError
from tracekit.model.metadata import Manifest


def write(folder: Path, export: Callable[[Path], None], budget: DiskBudget | None = None) -> Path:
    """Export and pack a window of rank 0, and return its trace."""
    budget = budget or DiskBudget()
    paths = RecordingPaths(folder, 0)
    export_trace(paths, export, budget)
    write_trace(paths, describe, budget)
    return paths.packed


@pytest.fixture(params=["msgspec", "tokens"])
def both_checks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check exports with msgspec, and as a job does that has no msgspec."""
    if request.param == "tokens":
        monkeypatch.setitem(sys.modules, "msgspec", None)


@pytest.mark.usefixtures("both_checks")
@pytest.mark.parametrize(
    ("written", "meant"),
    [(b'na"me', 'na"me'), (b'"quoted"', '"quoted"'), (b"a\\d", "a\\d"), (b"tab\there", "tab\there"), (b'","', '","')],
)
def test_annotation_names_that_torch_does_not_escape_are_repaired(written: bytes, meant: str) -> None:
    text, escaped, dropped = repair(kineto_text(b"before", written, b"after"))

    assert [event["name"] for event in json.loads(text)["traceEvents"]] == ["before", meant, "after"]
    assert (escaped, dropped) == (1, 0)


@pytest.mark.usefixtures("both_checks")
def test_names_that_are_valid_json_are_left_alone() -> None:
    valid = kineto_text(b"plain", "umläut".encode(), b'escaped \\" quote', b"\\u00e4")

    assert repair(valid) == (valid, 0, 0)


@pytest.mark.usefixtures("both_checks")
@pytest.mark.parametrize("value", [b"NaN", b"inf", b"-inf", b'"a"b"', b'"\\d"', b'"\x01"'])
def test_an_event_that_cannot_be_repaired_is_dropped_and_the_others_are_kept(value: bytes) -> None:
    broken = kineto_text(b"first", b"second", b"third").replace(
        b'"second",\n    "pid": 1', b'"second",\n    "pid": ' + value
    )

    text, _, dropped = repair(broken)

    assert [event["name"] for event in json.loads(text)["traceEvents"]] == ["first", "third"]
    assert dropped == 1


def test_the_metadata_precedes_the_events_and_the_manifest_describes_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "new", exporting(kineto_text(b"a", b"b")))

    text = gzip.decompress(file.read_bytes())
    assert text.index(b'"tracekit"') < text.index(b'"traceEvents"')
    assert json.loads(text)["tracekit"]["steps"][0]["step"] == 4
    manifest = msgspec.json.decode((tmp_path / "new/rank-000000.manifest.json").read_bytes(), type=Manifest)
    assert manifest.file == file.name == "rank-000000.json.gz"
    assert manifest.bytes == file.stat().st_size
    assert manifest.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert (manifest.events, manifest.steps) == (2, (4, 5))
    assert files_below(tmp_path) == ["rank-000000.json.gz", "rank-000000.manifest.json"]


def test_a_repair_is_noted_in_the_metadata(tmp_path: Path) -> None:
    file = write(tmp_path, exporting(kineto_text(b'a"b')))

    notes = json.loads(gzip.decompress(file.read_bytes()))["tracekit"]["notes"]
    assert notes == [{"kind": "capture", "text": "1 annotation names were escaped, 0 events dropped as unreadable"}]


@pytest.mark.usefixtures("both_checks")
@pytest.mark.parametrize("piece", [1, 7, 64])
def test_an_export_is_checked_piece_by_piece(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(packing, "_PIECE_BYTES", piece)
    valid = kineto_text(b"plain", b'escaped \\" quote').replace(b'"pid": 1', b'"pid": 1e5, "args": [true, null, -2.5]')

    assert repair(valid) == (valid, 0, 0)
    assert repair(valid.replace(b"null", b"nan"))[2] == 2


def test_events_are_counted_alike_by_both_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_PIECE_BYTES", 64)
    texts = [kineto_text(*[b"name"] * events) for events in (0, 1, 9)]
    with_msgspec = [packing._count_by_msgspec(text, text.index(b"[") + 1, text.rindex(b"]")) for text in texts]
    monkeypatch.setitem(sys.modules, "msgspec", None)

    assert with_msgspec == [packing._count_events(text) for text in texts] == [0, 1, 9]


@pytest.mark.usefixtures("both_checks")
@pytest.mark.parametrize("text", [b"", b"{", b'{"traceEvents": [\n  {"name": '])
def test_an_export_that_is_no_trace_leaves_no_file(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(OutputError):
        write(tmp_path, exporting(text))

    assert files_below(tmp_path) == []


def test_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(packing.os, "fsync", full)

    with pytest.raises(OutputError, match="No space left"):
        write(tmp_path, exporting(kineto_text(b"a")))

    assert files_below(tmp_path) == []


def test_nothing_is_written_to_an_almost_full_disk(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"MiB left.*TRACEKIT_MIN_FREE_BYTES"):
        write(tmp_path, pytest.fail, budget=DiskBudget(min_free_bytes=1 << 62))


def test_the_files_of_a_rank_stay_within_the_total(tmp_path: Path) -> None:
    first = write(tmp_path / "1", exporting(kineto_text(b"a"))).stat().st_size

    for window in ("2", "3"):  # each by a probe of its own
        budget = DiskBudget(max_bytes=3 * first + first // 2)
        write(tmp_path / window, exporting(kineto_text(b"a")), budget=budget)
    with pytest.raises(OutputError, match="TRACEKIT_MAX_BYTES"):
        write(tmp_path / "4", exporting(kineto_text(b"a")), budget=budget)

    assert files_below(tmp_path / "4") == []


@pytest.mark.parametrize("links", [True, False])
def test_a_trace_without_a_manifest_is_removed_and_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    size = write(tmp_path / "1", exporting(kineto_text(b"a"))).stat().st_size
    budget = DiskBudget(max_bytes=2 * size + size // 2)

    with monkeypatch.context() as broken:
        publish = paths.publish

        def refuse(file: Path, target: Path) -> None:
            if "manifest" in target.name:
                raise OSError(errno.EDQUOT, "Disk quota exceeded")
            publish(file, target)

        broken.setattr(packing, "publish", refuse)
        if not links:
            broken.setattr(paths.os, "link", _no_links)
        with pytest.raises(OutputError, match="quota"):
            write(tmp_path / "2", exporting(kineto_text(b"a")), budget=budget)

    assert files_below(tmp_path / "2") == []
    write(tmp_path / "2", exporting(kineto_text(b"a")), budget=budget)


def _no_links(*_: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def test_a_trace_that_is_too_large_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_EXPORT_BYTES", 10)

    with pytest.raises(OutputError, match="record fewer steps"):
        write(tmp_path, exporting(kineto_text(b"a")))

    assert files_below(tmp_path) == []


def test_files_of_a_killed_process_with_the_same_pid_are_removed(tmp_path: Path) -> None:
    def export_after_a_kill(file: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, export_after_a_kill)
    names: list[str] = []
    write(tmp_path, lambda file: names.append(file.name) or exporting(kineto_text(b"a"))(file))  # type: ignore[func-returns-value]
    for file in tmp_path.iterdir():
        file.unlink()
    for name in names:
        (tmp_path / name).write_bytes(b"left over")
        (tmp_path / name.replace(".tmp", ".gz.tmp")).write_bytes(b"left over")

    write(tmp_path, exporting(kineto_text(b"a")))

    assert files_below(tmp_path) == ["rank-000000.json.gz", "rank-000000.manifest.json"]


def test_folders_of_more_than_4096_ranks_are_split_by_thousands() -> None:
    assert trace_folder(Path("r"), "id", 1, 4, 3999, 4096) == Path("r/id/attempt-1/step-000000004")
    assert trace_folder(Path("r"), "id", 0, 4, 3999, 4097) == Path("r/id/attempt-0/step-000000004/rank-003xxx")


def test_an_existing_file_is_never_replaced(tmp_path: Path) -> None:
    before = write(tmp_path, exporting(kineto_text(b"first"))).read_bytes()

    with pytest.raises(OutputError, match="exists"):
        write(tmp_path, exporting(kineto_text(b"second")))

    assert (tmp_path / "rank-000000.json.gz").read_bytes() == before
    assert files_below(tmp_path) == ["rank-000000.json.gz", "rank-000000.manifest.json"]


def test_a_file_system_without_links_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths.os, "link", _no_links)

    write(tmp_path, exporting(kineto_text(b"a")))

    assert files_below(tmp_path) == ["rank-000000.json.gz", "rank-000000.manifest.json"]


@pytest.mark.parametrize("suffix", [".json.gz", ".manifest.json"])
def test_a_run_whose_files_exist_gets_the_next_unused_name(tmp_path: Path, suffix: str) -> None:
    def occupy(run_id: str) -> None:
        folder = trace_folder(tmp_path, run_id, 0, 4, 1, 2)
        folder.mkdir(parents=True)
        (folder / f"rank-000001{suffix}").touch()

    assert unused_run_id(tmp_path, "run", 0, 4, 1, 2) == "run"
    occupy("run")
    assert unused_run_id(tmp_path, "run", 0, 4, 0, 2) == "run"
    assert unused_run_id(tmp_path, "run", 0, 4, 1, 2) == "run-2"
    occupy("run-2")
    assert unused_run_id(tmp_path, "run", 0, 4, 1, 2) == "run-3"
    occupy("x" * 64)
    assert unused_run_id(tmp_path, "x" * 64, 0, 4, 1, 2) == "x" * 62 + "-2"
