"""The pages of the site: each is in the navigation, its links lead somewhere, and its marks have generators."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from docs.reference.hooks import GENERATORS, filled_in
from docs.reference.links import outside_files, page_links
from tests.places import ROOT
from tracekit.analysis.sections import SECTIONS

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("**/*.md"))
CONFIGURATION = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def navigation(entries: list[dict[str, object]]) -> Iterator[str]:
    """The paths of all pages in the navigation, below `docs/` or, of other folders, below the repository."""
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                assert isinstance(value, list)
                yield from navigation(value)


def test_every_page_is_in_the_navigation_once_and_every_entry_is_a_page() -> None:
    entries = sorted(navigation(CONFIGURATION["nav"]))
    outside = {path for path in outside_files(ROOT) if path.endswith(".md") and not path.startswith("tests/")}

    assert entries == sorted({page.relative_to(DOCS).as_posix() for page in PAGES} | outside)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_a_page_links_to_exist(page: Path) -> None:
    targets = {target for target, _ in page_links(page.read_text())}

    assert {target for target in targets if not (page.parent / target).exists()} == set()


def test_the_page_on_verdicts_lists_every_section_once() -> None:
    text = (DOCS / "reading-a-verdict.md").read_text()
    _, _, table = text.partition("| section | question |\n")
    rows, _, _ = table.partition("\n\n")
    listed = [name for row in rows.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]

    assert sorted(listed) == sorted(SECTIONS)


@pytest.mark.parametrize(
    ("page", "begin", "report"),
    [
        ("README.md", "1. stage 1 (rank 1) takes", "terminal.txt"),
        ("docs/reading-a-verdict.md", "Bubbles by cause", "full.txt"),
    ],
)
def test_what_a_page_quotes_of_the_gallery_is_there(page: str, begin: str, report: str) -> None:
    (quoted,) = [block for block in (ROOT / page).read_text().split("```")[1::2] if block.startswith(f"\n{begin}")]

    assert quoted.strip("\n") in (ROOT / "reports" / "pipeline" / report).read_text()


def test_every_generator_has_one_place_and_every_mark_a_generator() -> None:
    mark = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
    marks = [name for page in PAGES for name in mark.findall(page.read_text())]

    assert sorted(marks) == sorted(GENERATORS)


def test_a_mark_is_replaced_and_a_mark_without_a_generator_is_an_error() -> None:
    text = filled_in("before\n\n<!-- generated: manifest -->\n\nafter")

    assert text.startswith("before\n\n### Manifest\n")
    assert text.endswith("|\n\nafter")
    assert filled_in("<!-- generated: manifest -->\n_For readers of the source._\n\nafter") == text.removeprefix(
        "before\n\n"
    )
    assert filled_in("the mark `<!-- generated: tables -->` within a line stays") == (
        "the mark `<!-- generated: tables -->` within a line stays"
    )
    with pytest.raises(KeyError, match="no_such"):
        filled_in("<!-- generated: no_such -->")
