"""Which file a report becomes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.builders import TraceBuilder, write_run
from tests.components import require_module
from tests.places import DATA, ROOT
from tests.unit.explain.gpu_runs import gpu_rank
from tests.unit.render.files.reports import recorded_report
from tracekit.cli import cli
from tracekit.errors import OutputError, UsageError
from tracekit.render.files.formats import FOLDERS, FORMATS, format_of

RUN = str(DATA / "ddp_slow_rank")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["analyze", RUN, *map(str, arguments)], prog_name="tracekit")


def require_what_writes(suffix: str) -> None:
    if (package := {".parquet": "pyarrow", ".xlsx": "openpyxl"}.get(suffix)) is not None:
        require_module(package)


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_is_written_once_and_again_by_force(tmp_path: Path, suffix: str) -> None:
    require_what_writes(suffix)
    path = tmp_path / f"report{suffix}"
    assert run("-o", path).exit_code == 0
    assert path.is_dir() == (suffix in FOLDERS)
    refused = run("-o", path)
    assert refused.exit_code == 3
    assert "exists already" in refused.stderr
    assert run("-o", path, "--force").exit_code == 0
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_path_of_a_run_need_not_be_unicode(tmp_path: Path, suffix: str) -> None:
    require_what_writes(suffix)
    folder = write_run(tmp_path / os.fsdecode(b"run\xff"), [gpu_rank(rank, 2) for rank in range(2)])
    outcome = CliRunner().invoke(cli, ["analyze", str(folder), "-o", str(tmp_path / f"report{suffix}")])
    assert outcome.exit_code == 0, outcome.stderr
    assert (tmp_path / f"report{suffix}").exists()


def test_a_trailing_slash_is_the_same_folder(tmp_path: Path) -> None:
    outcome = run("-o", f"{tmp_path}/tables.csv/")
    assert outcome.exit_code == 0
    files = len(list((tmp_path / "tables.csv").iterdir()))
    assert outcome.stderr == f"wrote {tmp_path}/tables.csv/: {files} files\n"


@pytest.mark.parametrize("name", ["tables/", "report", "report.pdf"])
def test_a_name_without_a_format_is_a_usage_error_that_lists_them(name: str) -> None:
    outcome = run("-o", name)
    assert outcome.exit_code == 2
    assert "does not end in .html, .json, .txt, .md, .csv, .parquet or .xlsx" in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_options_that_a_format_cannot_show_are_refused(tmp_path: Path) -> None:
    for options in (["--actions"], ["--json"]):
        outcome = run("-o", tmp_path / "report.md", *options)
        assert outcome.exit_code == 2, options
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_the_run_is_never_overwritten(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1).step(0, 0, 1000).op("aten::mm", 0, 1000).write(tmp_path / "rank0.json")
    before = trace.read_bytes()
    outcome = CliRunner().invoke(cli, ["analyze", str(trace), "-o", str(trace), "--force"])
    assert outcome.exit_code == 3
    assert "a recording, which is not overwritten" in outcome.stderr
    assert trace.read_bytes() == before


def test_the_documentation_lists_every_format() -> None:
    text = (ROOT / "docs" / "outputs.md").read_text()
    assert re.findall(r"(?m)^\| `\w+(\.\w+)` \|", text) == list(FORMATS)


def test_python_writes_the_same(tmp_path: Path) -> None:
    report = recorded_report()
    report.write(tmp_path / "python.json")
    with pytest.raises(OutputError):
        report.write(tmp_path / "python.json")
    report.write(tmp_path / "python.json", force=True)
    assert (tmp_path / "python.json").read_text() == report.to_json()
    report.write(tmp_path / "python.html")
    assert (tmp_path / "python.html").read_text() == report.to_html()
    with pytest.raises(UsageError):
        format_of(Path("report.docx"))
