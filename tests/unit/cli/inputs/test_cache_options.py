"""The cache options of commands: the default place, another place, no cache."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.builders import TraceBuilder, write_run
from tracekit.cli import cli
from tracekit.read.cache import store as cache
from tracekit.read.cache.cache_dir import CACHE_FOLDER


@pytest.fixture(autouse=True)
def _without_a_variable_a_minute_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRACEKIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache, "_now_ns", lambda: time.time_ns() + 60 * 10**9)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a folder of traces where the probe writes them, with its manifests."""
    folder = _traces(tmp_path / "run-1" / "attempt-0" / "step-000000000")
    for rank in (0, 1):
        (folder / f"rank{rank}.manifest.json").write_text("{}")
    return folder


def _traces(folder: Path) -> Path:
    ranks = [TraceBuilder(rank).step(0, 0, 100).kernel("gemm", 0, 50, launched_at=0) for rank in (0, 1)]
    return write_run(folder, ranks)


def entries(folder: Path) -> int:
    return len(list((folder / CACHE_FOLDER).glob("*.summary")))


@pytest.mark.parametrize("command", ["analyze", "info", "whatif"])
def test_the_default_place_is_beside_a_run_of_the_probe(run: Path, command: str) -> None:
    first = CliRunner().invoke(cli, [command, str(run)])
    assert first.exit_code == 0
    assert entries(run) == 2
    assert CliRunner().invoke(cli, [command, str(run)]).stdout == first.stdout


def test_nothing_is_written_beside_traces_of_others(tmp_path: Path) -> None:
    """GIVEN traces that another program wrote THEN their cache is the user's, also the second time."""
    folder = _traces(tmp_path / "dataset")
    before = sorted(folder.iterdir())
    first = CliRunner().invoke(cli, ["analyze", str(folder)])
    assert first.exit_code == 0
    assert CliRunner().invoke(cli, ["analyze", str(folder)]).stdout == first.stdout
    assert sorted(folder.iterdir()) == before
    assert len(list((tmp_path / "home" / "torch-tracekit").glob("*.summary"))) == 2


def test_merge_uses_the_cache(run: Path, tmp_path: Path) -> None:
    for name in ("cold.pftrace", "cached.pftrace"):
        assert CliRunner().invoke(cli, ["merge", str(run), "-o", str(tmp_path / name)]).exit_code == 0
    assert entries(run) == 2
    assert (tmp_path / "cold.pftrace").read_bytes() == (tmp_path / "cached.pftrace").read_bytes()


def test_a_single_file_and_a_glob(run: Path) -> None:
    CliRunner().invoke(cli, ["analyze", str(run / "rank0.json.gz")])
    assert entries(run) == 1
    CliRunner().invoke(cli, ["analyze", str(run / "*.json.gz")])
    assert entries(run) == 2


def test_no_cache(run: Path) -> None:
    assert CliRunner().invoke(cli, ["analyze", str(run), "--no-cache"]).exit_code == 0
    assert not (run / CACHE_FOLDER).exists()


def test_the_option_precedes_the_variable(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_CACHE", str(tmp_path / "variable"))
    CliRunner().invoke(cli, ["analyze", str(run), "--cache-dir", str(tmp_path / "option")])
    assert (entries(tmp_path / "option"), entries(tmp_path / "variable"), entries(run)) == (2, 0, 0)
    CliRunner().invoke(cli, ["analyze", str(run)])
    assert (entries(tmp_path / "option"), entries(tmp_path / "variable"), entries(run)) == (2, 2, 0)


def test_a_place_and_no_cache_contradict(run: Path, tmp_path: Path) -> None:
    outcome = CliRunner().invoke(cli, ["analyze", str(run), "--no-cache", "--cache-dir", str(tmp_path)])
    assert outcome.exit_code == 2
    assert "leave one out" in outcome.stderr


def test_an_unusable_place_is_refused(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place that the user names is never skipped silently."""
    (tmp_path / "file").touch()
    for name, reason in (("", "empty"), (str(tmp_path / "file"), "File exists"), ("/proc/none", "No such file")):
        outcome = CliRunner().invoke(cli, ["analyze", str(run), "--cache-dir", name])
        assert outcome.exit_code == 2
        assert reason in outcome.stderr
        assert outcome.stderr.count("\n") == 1
    monkeypatch.setenv("TRACEKIT_CACHE", "/proc/none")
    outcome = CliRunner().invoke(cli, ["analyze", str(run)])
    assert outcome.stderr.startswith("Error: cache folder /proc/none: No such file or directory.")


def test_a_run_in_a_read_only_place_is_analysed(run: Path) -> None:
    (run / CACHE_FOLDER).write_text("in the way")
    outcome = CliRunner().invoke(cli, ["analyze", str(run)])
    assert (outcome.exit_code, outcome.stderr) == (0, "")
