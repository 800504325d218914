"""The table of the study, and its place in docs/real-jobs.md; the prose around it is by hand."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.studies.documents import Row, between_marks, markdown
from benchmarks.studies.rates import rate
from benchmarks.studies.real_jobs.scoring import Score

FILE = Path(__file__).parents[3] / "docs" / "real-jobs.md"


def table(scores: Sequence[Score]) -> list[Row]:
    """Return a row for each kind of defect, and one for all of them."""
    heading = (
        *("planted", "pairs", "culprit right", "cause right", "sure", "likely"),
        *("delay in ms", "median error of savings", "savings close", "false alarms without"),
    )
    kinds = dict.fromkeys(score.kind for score in scores)
    rows = [_row(kind, [s for s in scores if s.kind == kind]) for kind in kinds]
    return [heading, *rows, _row("all", scores)]


def summary(scores: Sequence[Score]) -> str:
    """Return the rates over all pairs, with their 95 % intervals, as a list of Markdown."""
    rates = {
        "culprit right": [score.named for score in scores],
        "cause right": [score.right_cause for score in scores],
        "savings close to what was measured": [score.is_close for score in scores],
        "savings close to the planted delay, where it is one": _known(score.is_close_to_planted for score in scores),
        "measurements as close to it": _known(score.is_measured_well for score in scores),
        "false *sure* without the defect": [score.false_alarm == "sure" for score in scores],
        "false *likely* without the defect": [score.false_alarm == "likely" for score in scores],
    }
    return "\n".join(f"* {name}: {rate(each)}" for name, each in rates.items())


def _known(each: Iterable[bool | None]) -> list[bool]:
    return [value for value in each if value is not None]


def write_tables(scores: Sequence[Score]) -> None:
    tables = {"kinds": markdown(table(scores)), "rates": summary(scores)}
    FILE.write_text(between_marks(FILE.read_text(), tables))


def _row(name: str, scores: Sequence[Score]) -> Row:
    delays_ms = [score.measured_ns / 1e6 for score in scores]
    return (
        name,
        str(len(scores)),
        str(sum(score.named for score in scores)),
        str(sum(score.right_cause for score in scores)),
        str(sum(score.named and score.certainty == "sure" for score in scores)),
        str(sum(score.named and score.certainty == "likely" for score in scores)),
        f"{min(delays_ms):.0f} to {max(delays_ms):.0f}",
        f"{statistics.median(score.relative_error for score in scores):.1%}",
        str(sum(score.is_close for score in scores)),
        str(sum(score.false_alarm is not None for score in scores)),
    )
