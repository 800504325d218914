"""The catalogue of findings: a chapter for each entry, and all of them in one table."""

from __future__ import annotations

from collections.abc import Iterator

from docs.reference.markdown import table
from tracekit.findings.catalogue import Entry, catalogue

__all__ = ["finding_pages", "tag_table"]


def finding_pages() -> str:
    """Return a chapter for each finding, in the order of the catalogue: its meaning, thresholds and an example."""
    return "\n".join(line for entry in catalogue().values() for line in _chapter(entry))


def tag_table() -> str:
    """Return a row for each finding: tag, id, first sentence of its meaning, and an example of what to do."""
    return table(("tag", "finding", "what it means", "what to do, for example"), map(_row, catalogue().values()))


def _row(entry: Entry) -> tuple[str, str, str, str]:
    meaning, _, _ = " ".join(entry.meaning.split()).partition(". ")
    _, action = entry.sentence(entry.example)
    tag = entry.term_of(entry.example).upper()
    return tag, f"[{entry.id}](findings.md#{entry.id})", f"{meaning.removesuffix('.')}.", action or ""


def _chapter(entry: Entry) -> Iterator[str]:
    text, action = entry.sentence(entry.example)
    yield from (f"### {entry.id}", "", entry.meaning, "")
    yield f"Its numbers are in the section `{entry.section}`."
    if entry.thresholds:
        takes = ", ".join(f"{each:g} ({each.what})" for each in entry.thresholds)
        yield f"It takes at least {takes}."
    yield from ("", f"> {text}", *([">", f"> {action}"] if action is not None else []), "")
