"""The workflows for GitHub are whole, what they run and name is there, and all agree on the versions of Python."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml

from tests.places import ROOT

WORKFLOWS: dict[str, dict[str, Any]] = {
    file.name: yaml.safe_load(file.read_text()) for file in sorted((ROOT / ".github" / "workflows").iterdir())
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WHEELS = PROJECT["tool"]["cibuildwheel"]
STEPS = [step for workflow in WORKFLOWS.values() for job in workflow["jobs"].values() for step in job["steps"]]
COMMANDS = [step["run"] for step in STEPS if "run" in step] + WHEELS["test-command"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_is_whole(name: str) -> None:
    """`on` is a truth value to YAML 1.1."""
    jobs = WORKFLOWS[name]["jobs"]
    assert WORKFLOWS[name][True]
    assert [job for job, what in jobs.items() if not what["runs-on"] or not {*what.get("needs", [])} <= {*jobs}] == []


def test_a_step_runs_a_command_or_uses_an_action_of_a_version() -> None:
    version = re.compile(r"[\w-]+/[\w/-]+@[\w./]+")
    assert [step for step in STEPS if "run" not in step and not version.fullmatch(step["uses"])] == []


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = [target for command in COMMANDS for target in re.findall(r"\bmake ([\w-]+)", command)]
    assert {"check", "test", "package-check"} <= {*named} <= targets


def test_paths_exist() -> None:
    path = re.compile(r"(?:^|[\s}/'])((?:tests|docs|\.ci)/[\w./-]+|[\w-]+\.(?:txt|toml))")
    named = {found for command in COMMANDS for found in path.findall(command)}
    assert {"constraints.txt", "tests/data/ddp_slow_rank"} < named
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_versions_of_python_are_those_that_are_promised() -> None:
    promised = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", line)]
    (matrix,) = [
        job["strategy"]["matrix"]["python"]
        for job in WORKFLOWS["ci.yml"]["jobs"].values()
        if "python" in job.get("strategy", {}).get("matrix", {})
    ]
    assert matrix == promised
    assert WHEELS["build"].split() == [f"cp{version.replace('.', '')}-*" for version in promised]
    variants = yaml.safe_load((ROOT / ".ci" / "conda" / "variants.yaml").read_text())
    assert variants["python"] == [f"{version}.*" for version in promised]
    assert PROJECT["project"]["requires-python"] == f">={promised[0]}"
