"""docs/add-an-analysis.md: its code, added to a copy of the package as the page says, answers on a recorded run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import DATA, ROOT
from tracekit.loading.load import load

PAGE = ROOT / "docs" / "add-an-analysis.md"
BLOCK = re.compile(r"^```(python|diff)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RECORDED = str(DATA / "ddp_slow_rank")
MOST_LINES = 60


def patch(text: str, diff: str) -> str:
    """Return `text` with the lines of the diff that begin with "+", each after the line above it, and without "-"."""
    lines = text.splitlines()
    above, removed = "", []
    for line in diff.splitlines():
        if line.startswith("+"):
            lines.insert(lines.index(above) + 1, line[1:])
        elif line.startswith("-"):
            removed.append(line[1:])
        above = line[1:]
    return "\n".join(line for line in lines if line not in removed) + "\n"


@pytest.fixture(scope="module")
def blocks() -> list[tuple[str, str, str]]:
    """Language, file and code of each block of the page that names a file."""
    return BLOCK.findall(PAGE.read_text())


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory, blocks: list[tuple[str, str, str]]) -> Path:
    """A copy of the package, with the page's analysis in it."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", tree)
    shutil.copytree(ROOT / "tracekit", tree / "tracekit", ignore=shutil.ignore_patterns("__pycache__"))
    for language, name, code in blocks:
        file = tree / name
        if language == "diff":
            file.write_text(patch(file.read_text(), code))
        else:
            assert not file.exists()
            file.parent.mkdir(exist_ok=True)
            file.write_text(code)
    return tree


def run(tree: Path, *arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "tracekit", *arguments]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout


def analyze(tree: Path, *options: str) -> str:
    return run(tree, "analyze", RECORDED, *options)


def test_the_page_is_short(blocks: list[tuple[str, str, str]]) -> None:
    """GIVEN the page THEN it fits a screen, and of files that are there four lines change."""
    changed = [line for language, _, code in blocks if language == "diff" for line in code.splitlines()]

    assert len(PAGE.read_text().splitlines()) < MOST_LINES
    assert not [line for line in changed if line.startswith("-")]
    assert sum(line.startswith("+") for line in changed) == 3  # an import, the section, the findings


def test_its_numbers_are_those_of_the_trace(tree: Path) -> None:
    result = json.loads(analyze(tree, "--section", "longest_steps", "--json"))

    longest_ns = {each.rank: max(step.step_ns for step in each.steps) for each in load(RECORDED).ranks}
    assert {row["rank"]: row["step_ns"] for row in result["longest_steps"]} == longest_ns


def test_it_stands_in_the_whole_report(tree: Path) -> None:
    """GIVEN the whole report THEN the new section is in it and the others are as before."""
    assert "Longest steps" in analyze(tree, "--full")
    with_it, without = json.loads(analyze(tree, "--json")), json.loads(analyze(ROOT, "--json"))

    assert set(with_it) - set(without) == {"longest_steps"}
    assert {key: value for key, value in with_it.items() if key not in {"longest_steps", "findings"}} == {
        key: value for key, value in without.items() if key != "findings"
    }


def test_its_finding_is_a_near_miss(tree: Path) -> None:
    """GIVEN steps of nearly one length THEN the catalogue has the finding, and says what it lacks."""
    assert "longest step, as a multiple of the mean step" in run(tree, "explain", "longest-step", RECORDED)
