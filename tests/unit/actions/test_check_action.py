"""The composite action: its script passes on what its inputs say, and the documented workflow fits it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.places import ROOT
from tracekit.gates.gates import DEFAULT_GATES, parse_gates
from tracekit.gates.metrics import METRICS

ACTION = yaml.safe_load((ROOT / "actions" / "check" / "action.yml").read_text())
DOCS = (ROOT / "docs" / "regression-gates.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOCS, re.DOTALL | re.MULTILINE)


def arguments(folder: Path, **inputs: str) -> list[str]:
    """Return the arguments that the script gives to Python, which a stub writes down."""
    given = {name: value.get("default", "") for name, value in ACTION["inputs"].items()} | inputs
    check = ACTION["runs"]["steps"][-1]
    env = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], value)
        for name, value in check["env"].items()
    }
    stub = folder / "bin" / "python"
    stub.parent.mkdir()
    stub.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    stub.chmod(0o755)
    path = f"{stub.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", check["run"]],
        env={"PATH": path, **env}, cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    result: list[str] = json.loads(done.stdout)
    return result


def test_only_a_run(tmp_path: Path) -> None:
    expected = ["-m", "tracekit", "check", "--github", "--force", "-o", "tracekit-check.xml", "--", "runs"]
    assert arguments(tmp_path, run="runs") == expected


def test_baselines_are_lines_and_globs(tmp_path: Path) -> None:
    for name in ("baseline/1", "baseline/2", "old run"):
        (tmp_path / name).mkdir(parents=True)
    found = arguments(tmp_path, run="runs", baseline="baseline/*\n\n  \nold run\nnone/*\n")
    baselines = [found[at + 1] for at, word in enumerate(found) if word == "--baseline"]
    assert baselines == ["baseline/1", "baseline/2", "old run", "none/*"]


def test_gates_and_doubts_are_passed_on(tmp_path: Path) -> None:
    found = arguments(tmp_path, run="runs", gates="my gates.toml", allow="inconclusive unavailable")
    assert (
        found[-7:]
        == [*("--gates", "my gates.toml", "--allow", "inconclusive", "--allow", "unavailable", "--", "runs")][-7:]
    )


def test_no_input_is_a_command(tmp_path: Path) -> None:
    found = arguments(tmp_path, run="$(touch hacked)", baseline="`touch hacked`; touch hacked")
    assert found[-1] == "$(touch hacked)"
    assert not (tmp_path / "hacked").exists()
    scripts = [step["run"] for step in ACTION["runs"]["steps"]]
    assert not any("${{" in script for script in scripts)


def test_the_documented_workflow_gives_inputs_that_there_are() -> None:
    (workflow,) = (yaml.safe_load(block) for block in blocks("yaml"))
    steps: list[dict[str, Any]] = workflow["jobs"]["step-time"]["steps"]
    (check,) = [step for step in steps if "torch-tracekit/actions/check@" in step.get("uses", "")]
    required = {name for name, value in ACTION["inputs"].items() if value.get("required")}
    assert required <= set(check["with"]) <= set(ACTION["inputs"])


def test_every_input_is_documented() -> None:
    documented = set(re.findall(r"^\| `([\w-]+)` \| [A-Z].*\.? \|$", DOCS, re.MULTILINE))
    assert set(ACTION["inputs"]) <= documented


def test_the_documented_gates_are_gates() -> None:
    import tomllib

    tables = [tomllib.loads(block)["gates"] for block in blocks("toml")]
    names = [gate.name for gate in parse_gates(tables[0], "docs").gates]
    assert names[:2] == ["step_time.max_increase", "step_time.max"]
    assert parse_gates(tables[1], "docs").fail_on == ("straggler", "data-loading")
    assert parse_gates(tables[2] | tables[0], "docs").run_noise == 0.04


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_every_metric_is_documented_with_its_limits(metric: Any) -> None:
    limits = "`max`, `max_increase`" if metric.worse == "higher" else "`min`, `max_decrease`"
    assert f"| `{metric.name}` | {limits} | {metric.meaning} |" in DOCS


def test_the_default_gate_is_documented() -> None:
    assert f"at most {DEFAULT_GATES.gates[0].limit:.0%}".replace("%", " %") + " longer" in DOCS
