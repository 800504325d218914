"""The catalogue of findings: ids that stay, words that are kept in one place, and thresholds that decide."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.places import ROOT
from tracekit.cli import COMMANDS
from tracekit.explain.sections import SECTIONS
from tracekit.findings.catalogue import Entry, catalogue
from tracekit.findings.finding import Condition
from tracekit.findings.thresholds import NOTABLE_SHARE
from tracekit.stats.grouped import grouped


def said(entry: Entry) -> str:
    text, action = entry.sentence(entry.example)
    return f"{entry.id}\n  {text}\n  -> {action}\n"


def sentences() -> dict[Path, str]:
    """The words of all findings by the file that has them: a file for the modules of one folder of tracekit."""
    said_in = grouped((entry.compose.__module__.split(".")[1], said(entry)) for entry in catalogue().values())
    return {ROOT / "tests" / "unit" / folder / "sentences.txt": "\n".join(words) for folder, words in said_in.items()}


@pytest.mark.parametrize("file", sentences(), ids=lambda file: file.parent.name)
def test_the_words_of_each_finding_are_as_they_were(file: Path) -> None:
    """Write them anew with: python -m tests.unit.findings.test_catalogue"""
    assert sentences()[file] == file.read_text()


def test_every_file_of_words_is_of_findings() -> None:
    assert set(sentences()) == set((ROOT / "tests" / "unit").rglob("sentences.txt"))


@pytest.mark.parametrize("entry", catalogue().values(), ids=lambda entry: entry.id)
def test_an_entry_has_an_id_a_section_and_a_meaning(entry: Entry) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", entry.id)
    of_a_command = {name for name in COMMANDS if entry.compose.__module__ == f"tracekit.{name}.findings"}
    assert entry.section in {*SECTIONS, *of_a_command}
    assert entry.meaning.endswith(".")


@pytest.mark.parametrize("entry", catalogue().values(), ids=lambda entry: entry.id)
def test_a_sentence_is_short_and_begins_with_the_term_that_is_the_tag(entry: Entry) -> None:
    finding = entry(evidence=entry.example)
    assert finding.text.upper().startswith(f"{finding.tag}: ")
    for said in (finding.text, finding.action or ""):
        assert len(said) <= 160
        assert max(len(sentence.split()) for sentence in said.split(". ")) <= 25


def test_the_largest_part_of_the_bubbles_is_named_first() -> None:
    """The screen cuts a sentence that is too long for it at its end."""
    entry = catalogue()["pipeline-bubble"]
    text, action = entry.sentence({**entry.example, "late_peer_ns": 60_000_000, "schedule": None})
    assert text.split(": ")[2].startswith("late peers")
    assert action is not None


def test_a_finding_holds_if_all_of_its_conditions_do() -> None:
    entry = catalogue()["late-by-turns"]
    met, unmet = NOTABLE_SHARE.reached_by(0.05), Condition(what="steps", value=2, bound=8, unit="steps")

    assert entry(evidence={"share": 0.05}, conditions=[met]).holds
    finding = entry(evidence={"share": 0.05}, conditions=[met, unmet])
    assert not finding.holds
    assert finding.closeness == 0.25


if __name__ == "__main__":
    for file, words in sentences().items():
        file.write_text(words)
