"""The pages of the site: each is in the navigation, its links lead somewhere, and its marks have generators."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator

import pytest
import yaml

from tests.places import ROOT
from tracekit.explain.sections import SECTIONS

DOCS = ROOT / "docs"
PARSERS: dict[str, Callable[[str], object]] = {
    "python": ast.parse,
    "toml": tomllib.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
}


def navigation(entries: list[dict[str, object]]) -> Iterator[str]:
    """The paths of all pages in the navigation, below `docs/` or, of other folders, below the repository."""
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                assert isinstance(value, list)
                yield from navigation(value)


def test_the_page_on_verdicts_lists_every_section_once() -> None:
    text = (DOCS / "reading-a-verdict.md").read_text()
    _, _, table = text.partition("| section | question |\n")
    rows, _, _ = table.partition("\n\n")
    listed = [name for row in rows.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]

    assert sorted(listed) == sorted(SECTIONS)


def test_generated_parts_are_as_the_code_makes_them() -> None:
    # In a process of its own: click keeps the help option of a command as the first test that parses it makes it.
    check = [sys.executable, "-m", "docs.reference", "--check"]
    stale = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False).stderr

    assert stale == "", "python -m docs.reference writes them again"


@pytest.mark.parametrize(
    ("page", "begin", "report"),
    [
        ("README.md", "1. Uneven stages: stage 1 (rank 1) takes", "terminal.txt"),
        ("docs/reading-a-verdict.md", "Bubbles by cause", "full.txt"),
    ],
)
def test_what_a_page_quotes_of_the_gallery_is_there(page: str, begin: str, report: str) -> None:
    (quoted,) = [block for block in (ROOT / page).read_text().split("```")[1::2] if block.startswith(f"\n{begin}")]

    assert quoted.strip("\n") in (ROOT / "reports" / "pipeline" / report).read_text()


@pytest.mark.parametrize("language", PARSERS)
def test_blocks_of_code_are_whole(language: str) -> None:
    parse = PARSERS[language]
    blocks = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    found = [block for page in DOCS.glob("*.md") for block in blocks.findall(page.read_text())]

    assert len(found) >= 2
    for block in found:
        parse(block)
