"""`tracekit config`: which settings hold, and where they come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tracekit.cli import cli
from tracekit.cli.inputs.settings import KEYS, OTHER_VARIABLES


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*(key.variable for key in KEYS), *OTHER_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tracekit.toml").write_text("jobs = 2\ncache = false\npeak_tflops = 989\n")
    return tmp_path


def config(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, [*arguments], env=environment, prog_name="tracekit")


def rows(outcome: Result) -> dict[str, list[str]]:
    assert outcome.exit_code == 0, outcome.stderr
    lines = [line.split() for line in outcome.stdout.splitlines()]
    return {line[0]: line[1:] for line in lines if line and line[0] in {key.name for key in KEYS}}


def test_each_setting_has_its_value_and_its_source() -> None:
    shown = rows(config("config", TRACEKIT_JOBS="7"))
    assert set(shown) == {key.name for key in KEYS}
    assert shown["jobs"] == ["7", "TRACEKIT_JOBS"]
    assert shown["cache"] == ["none", "tracekit.toml"]
    assert shown["peak_tflops"] == ["989.0", "tracekit.toml"]
    assert shown["strict"] == ["false", "default"]


def test_the_file_is_named_whole_and_another_can_be_taken(folder: Path) -> None:
    assert str(folder / "tracekit.toml") in config("config").stdout.replace("\n", "")
    (folder / "ci.toml").write_text("jobs = 9\n")
    assert rows(config("--config", "ci.toml", "config"))["jobs"] == ["9", "ci.toml"]
    assert rows(config("--config", "0", "config"))["jobs"][-1] == "default"
    assert rows(config("config", TRACEKIT_CONFIG="ci.toml"))["jobs"] == ["9", "ci.toml"]


def test_json_has_plain_values(folder: Path) -> None:
    found = json.loads(config("config", "--json", TRACEKIT_NATIVE="0").stdout)
    assert found["settings"]["jobs"] == {"value": 2, "from": str(folder / "tracekit.toml")}
    assert found["settings"]["strict"] == {"value": None, "from": None}
    assert found["variables"] == {"TRACEKIT_NATIVE": "0"}


def test_a_variable_that_nobody_reads_is_named_with_the_nearest() -> None:
    outcome = config("config", TRACEKIT_JOB="3", TRACEKIT_STEPS="5")
    text = " ".join(outcome.stdout.split())
    assert "TRACEKIT_JOB is no variable of tracekit. Did you mean 'TRACEKIT_JOBS'?" in text
    assert "TRACEKIT_STEPS 5 the probe's steps" in text


def test_a_wrong_file_is_one_line(folder: Path) -> None:
    (folder / "tracekit.toml").write_text("cach = 1\n")
    outcome = config("config")
    assert outcome.exit_code == 2
    assert "no setting is named 'cach'. Did you mean 'cache'?" in outcome.stderr
