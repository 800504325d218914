"""The section on pipeline parallelism."""

from __future__ import annotations

from tracekit.explain.pipeline import tables
from tracekit.explain.pipeline.bubbles import Pipeline, pipeline
from tracekit.explain.pipeline.per_rank import rank_actions
from tracekit.explain.pipeline.tables import ACTIONS, Actions
from tracekit.explain.section import Section
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.rank.segments import computing_or_loading


def _actions(recorded: RecordedSteps) -> Actions:
    """Return the rank's actions. Stages of a pipeline written by hand are found later, from all ranks together."""
    _, loading = recorded.once(computing_or_loading)
    return rank_actions(recorded.trace, recorded.lanes, recorded.messages, loading)


PIPELINE_SECTION: Section[Pipeline] = Section(
    name="pipeline",
    reads=(ACTIONS,),
    keeps={ACTIONS: _actions},
    analyze=lambda given: given.once(pipeline),
    tables=(tables.PIPELINE_ACTIONS, tables.PIPELINE_RANKS, tables.PIPELINE_STAGES, tables.PIPELINE_WHATIF),
)
