"""Names of a run, such as of kernels, groups, hosts and files, control neither a terminal nor what reads an output."""

from __future__ import annotations

import re
import unicodedata
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tracekit.trace_processor
from tests.components import require_module
from tests.hostile_names import HOSTILE, MARK, NAME_OF_A_FILE, hostile_ddp, hostile_gpu
from tracekit.cli import cli
from tracekit.render.merged.formats import FORMATS
from tracekit.trace_processor import Answer, TraceProcessor

MOST_BYTES = 2_500_000
ARGUMENT = HOSTILE[:-1]  # without the zero byte, which no program can be given


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / NAME_OF_A_FILE[:150]


@pytest.fixture(scope="module")
def ddp(folder: Path) -> Path:
    return hostile_ddp(folder / "ddp")


@pytest.fixture(scope="module")
def gpu(folder: Path) -> Path:
    return hostile_gpu(folder / "gpu")


@pytest.fixture(autouse=True)
def in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting worker processes takes longer than their work; one command below has them."""
    monkeypatch.setenv("TRACEKIT_JOBS", "1")


def run(*arguments: str | Path, **environment: str) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)], prog_name="tracekit", env=environment)


def assert_controls_nothing(text: str) -> None:
    """Every character but the end of a line is shown as it is; no line is a command of a CI system."""
    characters = set(text) - {"\n"}
    assert {c for c in characters if unicodedata.category(c)[0] == "C" or c in "\u2028\u2029"} == set()
    assert len(text.encode()) < MOST_BYTES
    for line in text.split("\n"):
        assert not line.lstrip().startswith("::"), line
        assert "##[" not in line, line


@pytest.mark.parametrize("kind", ["ddp", "gpu"])
@pytest.mark.parametrize(
    "command",
    [
        "analyze",
        "analyze --full --jobs 2",
        "analyze --json",
        "analyze --strict",
        "info",
        "info --kernels",
        "explain",
        "whatif",
        "whatif --json",
        "merge --min-dur 1us",
        *(f"merge --format {form}" for form in FORMATS),
    ],
)
def test_names_of_a_run_do_not_reach_a_terminal(
    command: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *options = command.split()

    result = run(name, request.getfixturevalue(kind), *options, GITHUB_ACTIONS="true", TRACEKIT_CACHE="0")

    assert result.exit_code in {0, 3}, result.output
    assert_controls_nothing(result.stdout)
    assert_controls_nothing(result.stderr)


@pytest.mark.parametrize(
    "command",
    [
        ["analyze", "--section", ARGUMENT],
        ["analyze", "--ranks", ARGUMENT],
        ["analyze", "--cache-dir", "/dev/null/" + NAME_OF_A_FILE],
        ["analyze", "--communication-rule", ARGUMENT],
        ["analyze", "--run", ARGUMENT],
        ["analyze", "-o", NAME_OF_A_FILE],
        ["analyze", "-o", NAME_OF_A_FILE + "/report.txt"],
        ["analyze", f"--{ARGUMENT}"],
        ["analyze", ARGUMENT],
        ["info", NAME_OF_A_FILE + "*"],
        ["whatif", "-o", NAME_OF_A_FILE],
        ["merge", "--categories", ARGUMENT],
        ["merge", "--format", ARGUMENT],
        ["check", "--gates", NAME_OF_A_FILE],
        ["open", ARGUMENT],
        ["query", ARGUMENT],
        ["query", ARGUMENT, "select 1"],
        ["doctor", ARGUMENT],
        ["cache", "size", ARGUMENT],
        ["--config", ARGUMENT, "analyze"],
        [ARGUMENT],
        ["x" + ARGUMENT],
    ],
)
def test_arguments_that_are_refused_do_not_reach_a_terminal(
    command: list[str], gpu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [gpu] if command[0] in {"analyze", "merge", "check", "whatif", "--config"} else []

    result = run(*command, *paths, GITHUB_ACTIONS="true", TRACEKIT_CACHE="0")

    assert MARK in result.stdout + result.stderr
    assert_controls_nothing(result.stdout + result.stderr)


@pytest.mark.parametrize("kind", ["ddp", "gpu"])
def test_runs_that_are_compared_do_not_reach_a_terminal_either(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    hostile = request.getfixturevalue(kind)
    for arguments in (
        ["compare", hostile, hostile],
        ["compare", hostile, hostile, "--json"],
        ["check", hostile, "--baseline", hostile],
    ):
        result = run(*arguments, GITHUB_ACTIONS="true")
        assert result.exit_code in {0, 1}, result.output
        assert_controls_nothing(result.stdout)


class Rows(TraceProcessor):
    """A trace processor whose every answer is a hostile row."""

    def ask(self, sql: str) -> Answer:
        names = ("name", "idx", "value") if "from stats" in sql else (HOSTILE, "value")
        return Answer(columns=names, rows=[(HOSTILE, 1, 2)[: len(names)]])

    def _load(self, trace: object) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("form", ["--csv", "--json", "-otext.txt"])
def test_rows_of_a_query_do_not_reach_a_terminal(
    form: str, gpu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracekit.trace_processor, "open_trace_processor", Rows)
    monkeypatch.chdir(tmp_path)
    result = run("query", gpu, "select", *([] if "txt" in form else [form]), GITHUB_ACTIONS="true")
    assert result.exit_code == 0, result.output
    assert MARK in result.stdout
    assert_controls_nothing(result.stdout.replace("\t", ""))
    assert_controls_nothing(result.stderr)


def test_settings_do_not_reach_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = HOSTILE[:-1]
    for environment in (
        {"TRACEKIT_PEAK_TFLOPS": text},
        {"TRACEKIT_JOBS": text},
        {"TRACEKIT_CONFIG": text},
        {f"TRACEKIT_{text.replace('=', '')}": "1"},
        {"TRACEKIT_PATH": text, "TRACEKIT_CACHE": text},
    ):
        for options in ([], ["--json"]):
            result = run("config", *options, GITHUB_ACTIONS="true", **environment)
            assert MARK in result.stdout + result.stderr, environment
            assert_controls_nothing(result.stdout + result.stderr)


def test_settings_of_a_file_do_not_reach_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / NAME_OF_A_FILE[:150]
    place.mkdir()
    monkeypatch.chdir(place)
    Path("tracekit.toml").write_text(
        'links = "' + HOSTILE.encode("unicode_escape").decode().replace("\\x", "\\u00") + '"'
    )
    assert_controls_nothing(run("config", GITHUB_ACTIONS="true").output)
    Path("tracekit.toml").write_text('"\\u001b[31m" = 1')
    assert_controls_nothing(run("config", GITHUB_ACTIONS="true").output)


@pytest.mark.parametrize("suffix", ["txt", "md", "html", "json"])
@pytest.mark.parametrize("kind", ["ddp", "gpu"])
def test_files_that_are_read_in_a_terminal_control_it_no_more(
    suffix: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    output = tmp_path / f"report.{suffix}"
    result = run("analyze", request.getfixturevalue(kind), "-o", output)
    assert result.exit_code == 0, result.output
    text = output.read_text()
    assert MARK in text
    own = "\t" if suffix == "html" else ""
    controls = {c for c in set(text) - {"\n", *own} if unicodedata.category(c)[0] == "C" or c in "\u2028\u2029"}
    assert controls == set()
    assert suffix != "html" or "<img src=x" not in text


def test_a_traceback_for_debugging_does_not_reach_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("analyze", NAME_OF_A_FILE, TRACEKIT_DEBUG="1", GITHUB_ACTIONS="true")
    assert MARK in result.stderr
    assert "Traceback" in result.stderr
    assert_controls_nothing(result.stderr)


@pytest.mark.parametrize("kind", ["ddp", "gpu"])
def test_a_workflow_gets_only_the_annotations_of_tracekit(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hostile = request.getfixturevalue(kind)
    outputs = ["-o", "check.xml", "-o", "check.md"]
    summary = tmp_path / "summary.md"
    result = run(
        *("check", hostile, "--baseline", hostile, "--github", *outputs),
        GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(summary),
    )
    assert result.exit_code in {0, 1}, result.output
    commands = [line for line in result.stdout.split("\n") if line.lstrip().startswith("::") or "##[" in line]
    assert len(commands) >= 1
    assert all(re.match(r"::(error|warning|notice) title=tracekit", line) for line in commands)
    for text in (result.stdout, Path("check.xml").read_text(), summary.read_text()):
        assert {c for c in set(text) - {"\n"} if unicodedata.category(c)[0] == "C"} == set()
    ET.parse("check.xml")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_tables_can_be_read_back(suffix: str, gpu: Path, tmp_path: Path) -> None:
    if suffix == "parquet":
        require_module("pyarrow")
    output = tmp_path / f"tables.{suffix}"
    result = run("analyze", gpu, "-o", output)
    assert result.exit_code == 0, result.output
    assert_controls_nothing(result.stderr)
    groups = tracekit.read_tables(output)["groups"]
    assert groups["description"].str.startswith(MARK).any()
