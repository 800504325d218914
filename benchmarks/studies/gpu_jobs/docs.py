"""Writes the tables of a study into docs/gpu-accuracy.md; the prose around them is by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.studies.documents import between_marks, markdown
from benchmarks.studies.gpu_jobs.scoring import Score
from benchmarks.studies.gpu_jobs.tables import table_by_check, table_by_defect, table_by_group

FILE = Path(__file__).parents[3] / "docs" / "gpu-accuracy.md"


def write_tables(scores: Sequence[Score], purpose: str, seeds: range) -> None:
    FILE.write_text(with_tables(FILE.read_text(), scores, purpose, seeds))


def with_tables(text: str, scores: Sequence[Score], purpose: str, seeds: range) -> str:
    """Return the text with its tables replaced."""
    tables = {
        "groups": markdown(table_by_group(scores)),
        "defects": markdown(table_by_defect(scores)),
        "checks": markdown(table_by_check(scores)),
        "seeds": f"Jobs with {purpose} seeds {seeds[0]} to {seeds[-1]}, in each group.",
    }
    return between_marks(text, tables)
