"""The section on ranks that hold up the others."""

from __future__ import annotations

from tracekit.analysis.model_parallel.parts import EXPERT_EXCHANGES
from tracekit.analysis.pauses.parts import PAUSE_TIMES
from tracekit.analysis.pipeline.bubble_causes import MeasuredPipeline
from tracekit.analysis.pipeline.bubbles import Pipeline, pipeline
from tracekit.analysis.pipeline.parts import ACTIONS
from tracekit.analysis.section import Section, Unavailable
from tracekit.analysis.stragglers import columns
from tracekit.analysis.stragglers.arrivals.arrivals import Arrivals, arrivals_of
from tracekit.analysis.stragglers.stragglers import Stragglers, counted_steps, stragglers
from tracekit.model.run import Run

__all__ = ["STRAGGLERS_SECTION", "arrivals"]


def arrivals(run: Run) -> Arrivals:
    """Return the arrivals in the steps that count."""
    return arrivals_of(run, frozenset(counted_steps(run)))


def _measured_pipelines(found: Pipeline | Unavailable) -> tuple[MeasuredPipeline, ...]:
    return () if isinstance(found, Unavailable) else found.measured


STRAGGLERS_SECTION: Section[Stragglers] = Section(
    name="stragglers",
    reads=(ACTIONS, EXPERT_EXCHANGES, PAUSE_TIMES),
    analyze=lambda given: stragglers(given.run, given.once(arrivals), _measured_pipelines(given.once(pipeline))),
    tables=(columns.STRAGGLERS,),
)
