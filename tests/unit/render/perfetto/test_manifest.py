"""The manifest and the unchanged files, read as Perfetto's documentation describes."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder, write_run
from tests.perfetto.test_merged_trace import gpu_rank
from tracekit.analysis.load import load
from tracekit.errors import OutputError
from tracekit.render.perfetto.manifest import MANIFEST_NAME, ManifestArchive, write_manifest


def read(archive: ManifestArchive) -> tuple[dict[str, Any], dict[str, bytes]]:
    with zipfile.ZipFile(archive.path) as members:
        content = {name: members.read(name) for name in members.namelist()}
        assert members.testzip() is None
        # Perfetto cannot read archives that have the sizes after the content.
        assert {member.flag_bits for member in members.infolist()} == {0}
    manifest = content.pop(MANIFEST_NAME)
    assert manifest.startswith(b'{\n "perfetto_manifest"')
    return json.loads(manifest)["perfetto_manifest"], content


def collectives_ns(manifest: dict[str, Any], content: dict[str, bytes]) -> list[list[int]]:
    """Return the times of collectives in Perfetto, by file: `ts`, without any base time, plus the file's offset."""
    reference = manifest["trace_time"]
    assert reference["clock"] == "REALTIME"
    assert reference["file"] in content
    times_ns = []
    for entry in manifest["files"]:
        assert entry["clocks"]["sync_to"] == reference
        events = json.loads(content[entry["path"]], parse_float=Decimal)["traceEvents"]
        starts = [e["ts"] for e in events if e["ph"] == "X" and e["name"].startswith("ncclDevKernel")]
        times_ns.append([int(Decimal(ts) * 1000) + entry["clocks"]["offset_ns"] for ts in starts])
    return times_ns


@pytest.mark.parametrize("skew_us", [0, 12_345, -1_500_000, 250_000_000])
def test_skewed_files_come_out_aligned(tmp_path: Path, skew_us: int) -> None:
    run = load(write_run(tmp_path / "in", [gpu_rank(0), gpu_rank(1, skew_us=skew_us, error_ns=700)]))
    archive = write_manifest(run, tmp_path / "run.zip")
    manifest, content = read(archive)
    first = gpu_rank(0).wall_ns(40_000)
    assert collectives_ns(manifest, content) == [[first + 100_000_000 * k for k in range(20)]] * 2
    assert [file.left_ns for file in archive.files] == [0, 0]
    assert manifest["attributes"]["tracekit.left_by_drift_ns"] == 0
    errors_ns = [clock.error_ns for clock in run.clocks]
    assert errors_ns[1] >= 700
    assert manifest["attributes"]["tracekit.clock_error_ns"] == errors_ns[1]
    assert [entry["tracekit"]["clock_error_ns"] for entry in manifest["files"]] == errors_ns
    assert archive.size_bytes == archive.path.stat().st_size


def test_the_error_that_drift_leaves_is_in_the_manifest(tmp_path: Path) -> None:
    """GIVEN a clock that runs 200 ppm fast for 2 s THEN files differ by 200 us at most, as the manifest says."""
    run = load(write_run(tmp_path / "in", [gpu_rank(0), gpu_rank(1, skew_us=777, drift_ppm=200)]))
    archive = write_manifest(run, tmp_path / "run.zip")
    manifest, content = read(archive)
    here, there = collectives_ns(manifest, content)
    apart = [b - a for a, b in zip(here, there, strict=True)]
    left_ns = archive.files[1].left_ns
    assert left_ns == pytest.approx(200_000, rel=0.01)
    assert manifest["attributes"]["tracekit.left_by_drift_ns"] == left_ns
    assert 0.9 * left_ns < max(map(abs, apart)) <= left_ns + 1000
    assert abs(max(apart) + min(apart)) < 0.1 * left_ns  # the offset is in the middle


def test_files_are_unchanged(tmp_path: Path) -> None:
    """GIVEN two compressed windows of each rank THEN the archive has their text, and each rank is a machine."""
    for rank in (0, 1):
        for first in (0, 50):
            trace = TraceBuilder(rank, 2)
            trace.step(first, 100 * first, 100).kernel("gemm", 100 * first + 10, 20, launched_at=100 * first)
            trace.nccl("all_reduce", 100 * first + 20, 30, launched_at=100 * first + 1)
            trace.capture().write_capture(tmp_path / "in")
    run = load(tmp_path / "in")
    manifest, content = read(write_manifest(run, tmp_path / "run.zip", jobs=2))
    assert [(entry["path"], entry["machine"]["name"]) for entry in manifest["files"]] == [
        ("rank-000000.json", "rank 0 · node0"),
        ("rank-000000.1.json", "rank 0 · node0"),
        ("rank-000001.json", "rank 1 · node0"),
        ("rank-000001.1.json", "rank 1 · node0"),
    ]
    sources = [Path(path) for summary in run.ranks for path in summary.files]
    assert list(content.values()) == [gzip.decompress(path.read_bytes()) for path in sources]
    assert [entry["tracekit"]["source"] for entry in manifest["files"]] == [path.name for path in sources]


def test_times_since_1970_and_since_a_base_are_aligned(tmp_path: Path) -> None:
    """GIVEN a rank with times since 1970 and one with Kineto's base time THEN their collectives are aligned."""
    traces = []
    for rank, absolute in ((0, False), (1, True)):
        trace = TraceBuilder(rank, 2, absolute=absolute)
        for k in range(3):
            trace.step(k, 100 * k, 100).kernel("gemm", 100 * k, 20, launched_at=100 * k)
            trace.nccl("all_reduce", 100 * k + 20, 30, launched_at=100 * k + 1)
        traces.append(trace)
    here, there = collectives_ns(*read(write_manifest(load(write_run(tmp_path / "in", traces)), tmp_path / "run.zip")))
    assert here == there == [traces[0].wall_ns(100 * k + 20) for k in range(3)]


def test_nothing_is_before_zero(tmp_path: Path) -> None:
    """GIVEN clocks that count from a boot 5 s ago, and offsets of 10 s THEN all files are shifted, and stay aligned."""
    traces = [gpu_rank(0), gpu_rank(1)]
    for trace in traces:
        trace.base_ns = 0
    run = load(write_run(tmp_path / "in", traces))
    run = replace(run, clocks=tuple(replace(clock, offset_ns=10**10) for clock in run.clocks))
    archive = write_manifest(run, tmp_path / "run.zip")
    here, there = collectives_ns(*read(archive))
    assert here == there
    assert min(here) > 0
    assert [file.first_ns for file in archive.files] == [0, 0]


def test_a_file_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "in", [gpu_rank(0), gpu_rank(1)])
    cut = folder / "rank1.json.gz"
    text = gzip.decompress(cut.read_bytes())
    cut.write_bytes(gzip.compress(text[: len(text) // 2]))
    archive = write_manifest(load(folder), tmp_path / "run.zip")
    manifest, content = read(archive)
    assert [file.rank for file in archive.left_out] == [1]
    assert [entry["path"] for entry in manifest["files"]] == list(content) == ["rank-000000.json"]
    (folder / "rank0.json.gz").unlink()
    with pytest.raises(OutputError, match="all files of the run are cut off"):
        write_manifest(load(folder), tmp_path / "other.zip")
    assert not (tmp_path / "other.zip").exists()


def test_text_that_is_too_large_for_an_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = load(write_run(tmp_path / "in", [gpu_rank(0)]))
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10_000)
    with pytest.raises(OutputError, match="too large"):
        write_manifest(run, tmp_path / "run.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_nothing_is_overwritten_by_accident(tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "in", [gpu_rank(0)]))
    target = tmp_path / "run.zip"
    target.write_text("mine")
    with pytest.raises(OutputError):
        write_manifest(run, target)
    assert target.read_text() == "mine"
    write_manifest(run, target, force=True)
    assert zipfile.is_zipfile(io.BytesIO(target.read_bytes()))
