"""Which files Perfetto reads unchanged, which are read as a run, and which are refused, by their first bytes."""

from __future__ import annotations

import gzip
import pickle
import sqlite3
import tarfile
import zipfile
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.builders import TraceBuilder, write_run
from tracekit import serve, trace_processor
from tracekit.analysis.load import load
from tracekit.cli import cli
from tracekit.cli.inputs.file_kind import MERGED, PERFETTO, kind_of
from tracekit.render.merged.merge import merge


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)], prog_name="tracekit")


@pytest.fixture
def merged(tmp_path: Path) -> Path:
    run = load(write_run(tmp_path / "in", [TraceBuilder(0, 1).step(0, 0, 100).op("aten::mm", 20, 30)]))
    return merge(run, tmp_path / "run.pftrace").path


def saved(tmp_path: Path, name: str) -> Path:
    """Write a file of this kind with the library that makes such files; return its path."""
    path = tmp_path / name
    match name:
        case "image.png":
            path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
        case "snapshot.pickle":
            path.write_bytes(pickle.dumps({"segments": []}))
        case "report.sqlite":
            with sqlite3.connect(path) as database:
                database.execute("create table kernels (name text)")
            database.close()
        case "model.pt" | "files.zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("model/data.pkl" if name == "model.pt" else "a.txt", "x")
        case "runs.tar.gz":
            with tarfile.open(path, "w:gz") as packed:
                packed.add(__file__, "a.py")
        case "page.html":
            path.write_text("\n<!DOCTYPE html><html></html>")
        case "log.txt":
            path.write_text("\nhello\nworld\n" * 10_000)
        case "log.txt.gz":
            path.write_bytes(gzip.compress(b"\nhello world\n"))
        case "short":
            path.write_bytes(b"\n")
        case "bytes":
            path.write_bytes(bytes(range(1, 256)) * 1000)
    return path


KINDS = {
    "image.png": "a PNG image",
    "snapshot.pickle": "a pickle, such as a snapshot of PyTorch's memory",
    "report.sqlite": "an SQLite database, such as Nsight Systems exports",
    "model.pt": "a file of torch.save",
    "files.zip": "a zip archive",
    "runs.tar.gz": "a tar archive, gzipped",
    "page.html": "an HTML page",
    "log.txt": "text",
    "log.txt.gz": "text, gzipped",
    "bytes": "data of an unknown kind",
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_other_files_are_refused_with_their_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    monkeypatch.setattr(serve, "TraceServer", None)  # the real one would wait for a browser
    monkeypatch.setattr(trace_processor, "open_trace_processor", nullcontext)
    path = saved(tmp_path, name)
    for command in (["open", path, "--print-url"], ["query", path, "select 1"], ["merge", path], ["analyze", path]):
        result = run(*command)
        assert (result.exit_code, result.stdout) == (3, ""), command
        assert result.stderr.startswith(f"Error: {path}: {kind}, not a trace. Hint: give a run"), command
        assert result.stderr.count("\n") == 1


def test_merged_traces_are_recognised_packed_or_cut_off(merged: Path, tmp_path: Path) -> None:
    assert kind_of(merged) == MERGED
    packed = tmp_path / "run.pftrace.gz"
    packed.write_bytes(gzip.compress(merged.read_bytes()))
    assert kind_of(packed) == MERGED
    cut = tmp_path / "cut.pftrace"
    cut.write_bytes(merged.read_bytes()[:-100])
    assert kind_of(cut) == MERGED
    other = tmp_path / "other.pftrace"
    other.write_bytes(b"\x0a\x02\x08\x01")  # a packet
    assert kind_of(other) == PERFETTO
    archive = tmp_path / "run.zip"
    assert run("merge", tmp_path / "in", "--format", "manifest", "-o", archive).exit_code == 0
    assert kind_of(archive).is_ready


def test_a_merged_trace_cannot_be_merged_again(merged: Path, tmp_path: Path) -> None:
    for command in ("merge", "analyze", "info"):
        result = run(command, merged)
        assert (result.exit_code, result.stdout) == (3, "")
        assert result.stderr == (
            f"Error: {merged}: a merged trace, not a recording of torch.profiler. "
            f"Hint: give the run that it was made of, or look at it: tracekit open {merged}\n"
        )


@pytest.mark.parametrize("content", [b"", b"\n", b'{"traceEvents": []}', b"\xef\xbb\xbf [", b"\x28\xb5\x2f\xfd"])
def test_json_and_unreadable_files_are_left_to_load(tmp_path: Path, content: bytes) -> None:
    for number, packed in enumerate((content, gzip.compress(content))):
        path = tmp_path / f"{number}.json"
        path.write_bytes(packed)
        assert kind_of(path).is_run
    assert kind_of(tmp_path / "missing").is_run
    (tmp_path / "damaged.gz").write_bytes(b"\x1f\x8b damaged")
    assert kind_of(tmp_path / "damaged.gz").is_run
