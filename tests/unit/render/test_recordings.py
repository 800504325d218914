"""Which files no result replaces, not even with `--force`."""

from __future__ import annotations

import gzip
import importlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.builders import TraceBuilder, write_run
from tests.trace_text import Layout
from tracekit.cli import cli
from tracekit.render.merged.formats import FORMATS
from tracekit.render.output import is_recording


def trace(rank: int = 0) -> TraceBuilder:
    return TraceBuilder(rank, 2).step(0, 0, 100).op("aten::mm", 0, 50).gloo("all_reduce", 50, 40)


@pytest.mark.parametrize("layout", ["kineto", "compact", "array"])
@pytest.mark.parametrize("packing", ["plain", "gzip", "zstd"])
def test_traces_are_recordings(layout: Layout, packing: str, tmp_path: Path) -> None:
    text = trace().text(layout)
    packed = {
        "plain": text,
        "gzip": gzip.compress(text),
        "zstd": importlib.import_module("zstandard").compress(text),
    }
    path = tmp_path / "result.json"
    path.write_bytes(packed[packing])
    assert is_recording(path)


@pytest.mark.parametrize("name", ["rank-000000.manifest.json", "rank-000000.progress"])
def test_what_the_probe_writes_beside_a_trace_is_one(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("{}")
    assert is_recording(tmp_path / name)


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", "RUN", "-o", "report.json"),
        ("analyze", "RUN", "-o", "report.html"),
        *(("merge", "RUN", "-o", form.default_name, "--format", name) for name, form in FORMATS.items()),
        ("whatif", "RUN", "-o", "whatif.json"),
        ("compare", "RUN", "RUN", "-o", "compared.json"),
    ],
)
def test_results_are_none_and_are_replaced(arguments: tuple[str, ...], tmp_path: Path) -> None:
    run = str(write_run(tmp_path / "run", [trace(0), trace(1)]))
    output = tmp_path / arguments[arguments.index("-o") + 1]
    command = [{"RUN": run, output.name: str(output)}.get(argument, argument) for argument in arguments]
    for _ in range(2):
        outcome = CliRunner().invoke(cli, [*command, "--force"])
        assert outcome.exit_code == 0, outcome.output
        assert not is_recording(output)


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", "RUN"),
        ("whatif", "RUN"),
        ("compare", "RUN", "RUN"),
        ("check", "RUN", "--baseline", "RUN"),
        ("query", "RUN", "select 1"),
    ],
)
def test_no_command_replaces_a_trace(arguments: tuple[str, ...], tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [trace(0), trace(1)])
    file = tmp_path / "other.json"
    trace().write(file)
    before = file.read_bytes()
    command = [str(run) if argument == "RUN" else argument for argument in arguments]
    outcome = CliRunner().invoke(cli, [*command, "-o", str(file), "--force"])
    assert outcome.exit_code != 0
    assert "other.json: a recording, which is not overwritten" in outcome.stderr
    assert file.read_bytes() == before
