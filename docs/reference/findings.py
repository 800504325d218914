"""The chapters of the page on findings: one for each entry of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator

from tracekit.findings.catalogue import Entry, catalogue

__all__ = ["finding_pages"]


def finding_pages() -> str:
    """Return a chapter for each finding, in the order of the catalogue: its meaning, thresholds and an example."""
    return "\n".join(line for entry in catalogue().values() for line in _chapter(entry))


def _chapter(entry: Entry) -> Iterator[str]:
    text, action = entry.sentence(entry.example)
    yield from (f"### {entry.id}", "", entry.meaning, "")
    yield f"Its numbers are in the section `{entry.section}`."
    if entry.thresholds:
        takes = ", ".join(f"{each:g} ({each.what})" for each in entry.thresholds)
        yield f"It takes at least {takes}."
    yield from ("", f"> {text}", *([">", f"> {action}"] if action is not None else []), "")
