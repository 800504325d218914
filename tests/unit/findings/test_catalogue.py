"""The catalogue of findings: ids that stay, words that are kept in one place, and thresholds that decide."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tracekit.explain.sections import SECTIONS
from tracekit.findings.catalogue import Entry, catalogue
from tracekit.findings.finding import Condition
from tracekit.findings.thresholds import NOTABLE_SHARE

SENTENCES = Path(__file__).parent / "sentences.txt"
DOORS = {"optables"}


def said(entry: Entry) -> str:
    text, action = entry.sentence(entry.example)
    return f"{entry.id}\n  {text}\n  -> {action}\n"


def test_the_words_of_each_finding_are_as_they_were() -> None:
    """Write them anew with: python -m tests.unit.findings.test_catalogue"""
    assert "\n".join(map(said, catalogue().values())) == SENTENCES.read_text()


@pytest.mark.parametrize("entry", catalogue().values(), ids=lambda entry: entry.id)
def test_an_entry_has_an_id_a_section_and_a_meaning(entry: Entry) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", entry.id)
    assert entry.section in {*SECTIONS, *DOORS}
    assert entry.meaning.endswith(".")


def test_a_finding_holds_if_all_of_its_conditions_do() -> None:
    entry = catalogue()["late-by-turns"]
    met, unmet = NOTABLE_SHARE.reached_by(0.05), Condition(what="steps", value=2, bound=8, unit="steps")

    assert entry(evidence={"share": 0.05}, conditions=[met]).holds
    finding = entry(evidence={"share": 0.05}, conditions=[met, unmet])
    assert not finding.holds
    assert finding.closeness == 0.25


if __name__ == "__main__":
    SENTENCES.write_text("\n".join(map(said, catalogue().values())))
