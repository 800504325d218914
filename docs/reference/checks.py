"""The checks of recordings and of runs, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from docs.reference.markdown import code, table
from tracekit.health.check import Check
from tracekit.health.rank_checks import RANK_CHECKS
from tracekit.health.run_checks import CLOCK_CHECKS, RUN_CHECKS

__all__ = ["check_pages"]

_EXCLUDES = {"rank": "the rank", "steps": "steps", "note": ""}


def check_pages() -> str:
    """Return a table of the checks of one recording, and one of those of a run, in the order in which they run."""
    of_run = _rows((*RUN_CHECKS, *CLOCK_CHECKS))
    return f"### Of one recording\n\n{_rows(RANK_CHECKS)}\n\n### Of the ranks of a run\n\n{of_run}"


def _rows(checks: Iterable[Check[Any]]) -> str:
    rows = [(code(check.id), check.text, _EXCLUDES[check.scope], check.remedy) for check in checks]
    return table(("id", "what it finds", "what it excludes", "remedy"), rows)
