"""`tracekit check`: its exit codes, and what it prints and writes for CI."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner, Result

from tests.unit.cli.compared_folders import STEADY, longer, write_run
from tracekit.cli import cli
from tracekit.gates.gates import Doubt


def check(*arguments: str | Path, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(cli, ["check", "--no-cache", *map(str, arguments)], prog_name="tracekit", env=env)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with the runs `main`, `same` and `slow`, and without a configuration."""
    monkeypatch.chdir(tmp_path)
    for name, lengths_us in (("main", STEADY), ("same", longer(2)), ("slow", longer(100))):
        write_run(tmp_path / name, lengths_us)
    return tmp_path


def gates(text: str, name: str = "tracekit.toml") -> None:
    Path(name).write_text(text)


def test_without_gates_the_step_may_not_be_longer_than_in_the_baseline() -> None:
    passed, failed = check("same", "--baseline", "main"), check("slow", "--baseline", "main")
    assert (passed.exit_code, failed.exit_code) == (0, 1), passed.stderr + failed.stderr
    assert passed.stdout.splitlines()[-1] == "passed: 1 of 1 gate passes (no gates are configured, so the default)"
    assert "FAIL  step_time.max_increase" in failed.stdout


def test_gates_of_the_folder_hold() -> None:
    gates("[gates.step_time]\nmax = '1050us'\n")
    assert check("main").exit_code == 0
    assert check("slow").exit_code == 1


def test_gates_of_pyproject_hold() -> None:
    gates("[tool.tracekit.gates.step_time]\nmax = '1050us'\n", "pyproject.toml")
    assert (check("main").exit_code, check("slow").exit_code) == (0, 1)


def test_a_file_of_gates_can_be_named() -> None:
    gates("[gates.step_time]\nmax = '2ms'\n", "nightly.toml")
    gates("[gates.step_time]\nmax = '1us'\n")
    assert check("main", "--gates", "nightly.toml").exit_code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gates.step_time]\nmax = 200\n", "tracekit.toml [gates]: step_time: max = 200 is not understood"),
        ("[gates.step]\nmax = '1s'\n", "no gate 'step'"),
        ("[gates.step_time\n", "no TOML"),
        ("[gates]\n", "no gate is in it"),
    ],
)
def test_a_gate_that_is_none_is_a_usage_error(text: str, message: str) -> None:
    gates(text)
    result = check("main", "--baseline", "main")
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_nothing_to_check_is_a_usage_error() -> None:
    result = check("main")
    assert result.exit_code == 2
    assert "there is nothing to check" in result.stderr


def test_a_limit_of_the_change_needs_a_baseline() -> None:
    gates("[gates.step_time]\nmax_increase = '5%'\n")
    result = check("none")  # it is refused before a run is read
    assert result.exit_code == 2
    assert "step_time.max_increase needs a baseline" in result.stderr


@pytest.mark.parametrize("arguments", [("none",), ("main", "--baseline", "none")])
def test_a_run_that_is_not_there_is_an_input_error(arguments: tuple[str, ...]) -> None:
    gates("[gates.step_time]\nmax = '1s'\n")
    assert check(*arguments).exit_code == 3


def test_it_fails_closed_unless_the_doubt_is_allowed(folder: Path) -> None:
    write_run(folder / "other", STEADY, ranks=3)
    write_run(folder / "few", STEADY[:4])
    for name, doubt in (("other", "incomparable"), ("few", "inconclusive")):
        refused = check(name, "--baseline", "main")
        assert refused.exit_code == 1
        assert f"step_time.max_increase: {doubt}, so failed" in refused.stdout
        assert check(name, "--baseline", "main", "--allow", doubt).exit_code == 0
    gates("[gates]\nallow = ['unavailable']\n[gates.bubble_ratio]\nmax = '20%'\n")
    assert check("main").exit_code == 0
    gates("[gates.bubble_ratio]\nmax = '20%'\n")
    assert check("main").exit_code == 1


def test_files_are_written_though_the_check_fails(folder: Path) -> None:
    files = [folder / name for name in ("c.json", "c.md", "c.xml", "c.txt")]
    result = check("slow", "--baseline", "main", *(argument for file in files for argument in ("-o", file)))
    assert (result.exit_code, result.stdout) == (1, "")
    assert json.loads(files[0].read_text())["passed"] is False
    assert files[1].read_text().startswith("## tracekit check failed: 0 of 1 gate pass")
    assert ET.parse(files[2]).getroot().get("failures") == "1"
    assert "FAIL  step_time.max_increase" in files[3].read_text()


def test_json_goes_to_the_terminal() -> None:
    result = check("slow", "--baseline", "main", "--json")
    assert result.exit_code == 1
    (gate,) = json.loads(result.stdout)["gates"]
    assert (gate["gate"], gate["status"], gate["passes"]) == ("step_time.max_increase", "failed", False)


def test_a_workflow_gets_annotations_and_a_summary(folder: Path) -> None:
    summary = folder / "summary.md"
    summary.write_text("what a step before it wrote\n")
    result = check("slow", "--baseline", "main", "--github", env={"GITHUB_STEP_SUMMARY": str(summary)})
    assert result.exit_code == 1
    annotations = [line for line in result.stdout.splitlines() if line.startswith("::")]
    assert [line.split(" ")[0] for line in annotations] == ["::error", "::notice"]
    assert summary.read_text().startswith("what a step before it wrote\n## tracekit check failed")
    assert check("slow", "--baseline", "main", "--github", "--json").exit_code == 2
    unwritable = {"GITHUB_STEP_SUMMARY": str(folder / "none" / "summary.md")}
    assert check("slow", "--baseline", "main", "--github", env=unwritable).exit_code == 3


def test_every_doubt_can_be_allowed_in_the_command() -> None:
    for doubt in get_args(Doubt):
        result = check("same", "--baseline", "main", "--allow", doubt)
        assert result.exit_code == 0, result.stderr


def test_a_finding_fails_a_check_until_it_is_ignored() -> None:
    ids = ["--fail-on", "exposed-transfers", "--fail-on", "straggler"]
    failed = check("main", *ids, "--json")
    found = {each["id"]: (each["status"], each["passes"]) for each in json.loads(failed.stdout)["findings"]}
    assert (failed.exit_code, found["straggler"]) == (1, ("passed", True))
    assert found["exposed-transfers"] == ("failed", False)
    assert check("main", *ids, "--ignore", "exposed-transfers=2999-01-01").exit_code == 0
    assert check("main", *ids, "--ignore", "exposed-transfers=2001-01-01").exit_code == 1


def test_findings_of_the_settings_are_gates() -> None:
    gates("[gates.findings]\nfail_on = ['exposed-transfers']\nignore = {exposed-transfers = 2999-01-01}\n")
    assert check("main").exit_code == 0
    gates("[gates.findings]\nfail_on = ['nothing']\n")
    assert check("main").exit_code == 2
