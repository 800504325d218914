"""The reports of several runs, for commands that compare them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.cli.inputs.run_choice import RunChoice

if TYPE_CHECKING:
    from tracekit.analysis.per_rank.options import StepSelection
    from tracekit.analysis.report import Report
    from tracekit.analysis.section import KnownWork

__all__ = ["read_reports"]


def read_reports(
    choices: Sequence[RunChoice],
    steps: StepSelection | None,
    sections: Iterable[str],
    work: KnownWork | None = None,
) -> list[Report]:
    """Return the report of each run, with some sections. Raises what loading a run raises.

    Everything is read of a run, so that `tracekit analyze` finds its summaries in the cache, and the other way round.
    """
    from tracekit.analysis.per_rank.options import StepSelection, SummaryOptions
    from tracekit.analysis.report import analyze

    options = SummaryOptions(steps=steps or StepSelection())
    first, *others = choices
    if first.anonymize:
        pseudonyms = first.pseudonyms_with(*others)
        choices = [replace(choice, anonymize=pseudonyms) for choice in choices]
    return [analyze(choice.load(options), only=sections, work=work) for choice in choices]
