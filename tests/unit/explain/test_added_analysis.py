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

PAGE = ROOT / "docs" / "add-an-analysis.md"
BLOCK = re.compile(r"^```(python|diff)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MOST_LINES = 80
MOST_CHANGED_LINES = 3


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


def analyze(tree: Path, *arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "tracekit", "analyze", str(DATA / "ddp_slow_rank"), *arguments]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_page_adds_a_short_analysis(blocks: list[tuple[str, str, str]]) -> None:
    """GIVEN the page THEN its new files are short, and of files that are there at most a few lines change."""
    python = [line for language, _, code in blocks if language == "python" for line in code.splitlines()]
    changed = [line for language, _, code in blocks if language == "diff" for line in code.splitlines()]

    assert sum(bool(line.strip()) for line in python) < MOST_LINES
    assert sum(line.startswith("-") for line in changed) <= MOST_CHANGED_LINES
    assert sum(line.startswith("+") for line in changed) == 4  # an import, an entry, the catalogue and the contract


def test_its_numbers_are_those_of_the_trace(tree: Path) -> None:
    result = json.loads(analyze(tree, "--section", "host_waits", "--json"))

    # Rank 0 prints its loss: three calls of item(), of 9.478, 9.602 and 8.949 us.
    rows = [(row["rank"], row["count"], row["total_ns"]) for row in result["host_waits"]]
    assert rows == [(0, 3, 28_029), (1, 0, 0)]
    (finding,) = [finding for finding in result["findings"] if "waits for its device 3 times" in finding["text"]]
    assert (finding["rank"], finding["action"]) == (0, "call item() less often")
    assert finding["evidence"] == {"section": "host_waits", "count": 3, "total_ns": 28_029}


def test_it_stands_in_the_whole_report(tree: Path) -> None:
    """GIVEN the whole report THEN the new section is in it and the others are as before."""
    assert "Waits for the device" in analyze(tree, "--full")
    with_it, without = json.loads(analyze(tree, "--json")), json.loads(analyze(ROOT, "--json"))

    assert set(with_it) - set(without) == {"host_waits"}
    assert {key: value for key, value in with_it.items() if key not in {"host_waits", "findings"}} == {
        key: value for key, value in without.items() if key != "findings"
    }
