"""Writes the tables of the study into docs/certainty.md; the prose around them is by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.studies.certainty.scoring import Score
from benchmarks.studies.documents import between_marks, markdown
from benchmarks.studies.rates import rate

FILE = Path(__file__).parents[3] / "docs" / "certainty.md"


def write_tables(scored: Mapping[str, Sequence[Score]], seeds: range) -> None:
    FILE.write_text(with_tables(FILE.read_text(), scored, seeds))


def with_tables(text: str, scored: Mapping[str, Sequence[Score]], seeds: range) -> str:
    """Return the text with its tables replaced."""
    tables = {"clean": _clean(scored), "planted": _planted(scored), "seeds": f"Seeds {seeds[0]} to {seeds[-1]}."}
    return between_marks(text, tables)


def _clean(scored: Mapping[str, Sequence[Score]]) -> str:
    rows = [
        (name, *(rate(s.certainty == grade for s in scores) for grade in ("sure", "likely")))
        for name, scores in scored.items()
        if not scores[0].case.planted
    ]
    return markdown([("runs", "false *sure*", "false *likely*"), *rows])


def _planted(scored: Mapping[str, Sequence[Score]]) -> str:
    rows = [
        (
            name,
            rate(s.right for s in scores),
            str(sum(s.right and s.certainty == "sure" for s in scores)),
            rate(s.right_cause for s in scores),
            str(sum(s.wrong for s in scores)),
        )
        for name, scores in scored.items()
        if scores[0].case.planted
    ]
    head = ("runs", "named right", "of these *sure*", "named with the right cause", "somebody else named")
    return markdown([head, *rows])
