"""The section on ranks that hold up the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis.model_parallel.tables import EXPERT_EXCHANGES
from tracekit.analysis.pauses.tables import PAUSE_TIMES
from tracekit.analysis.pipeline.tables import ACTIONS
from tracekit.analysis.section import AnalysisInput, Section, Unavailable
from tracekit.analysis.stragglers import tables
from tracekit.model.run import Run

if TYPE_CHECKING:
    from tracekit.analysis.stragglers.arrivals.arrivals import Arrivals
    from tracekit.analysis.stragglers.stragglers import Stragglers

__all__ = ["STRAGGLERS_SECTION", "arrivals"]


def arrivals(run: Run) -> Arrivals:
    """Return the arrivals in the steps that count."""
    # Imported here: a worker, which reads single ranks, needs nothing of what runs over all of them.
    from tracekit.analysis.stragglers.arrivals.arrivals import arrivals_of
    from tracekit.analysis.stragglers.stragglers import counted_steps

    return arrivals_of(run, frozenset(counted_steps(run)))


def _analyze(given: AnalysisInput) -> Stragglers | Unavailable:
    from tracekit.analysis.pipeline.bubbles import pipeline
    from tracekit.analysis.stragglers.stragglers import stragglers

    found = given.once(pipeline)
    measured = () if isinstance(found, Unavailable) else found.measured
    return stragglers(given.run, given.once(arrivals), measured)


STRAGGLERS_SECTION: Section[Stragglers] = Section(
    name="stragglers",
    reads=(ACTIONS, EXPERT_EXCHANGES, PAUSE_TIMES),
    analyze=_analyze,
    tables=(tables.STRAGGLERS, tables.SLOW_LINKS),
)
