"""One step of a pipeline as it ran: its actions, and its bubbles with their causes."""

from __future__ import annotations

from collections.abc import Iterator

from tracekit.analysis.pipeline.bubble_causes import step_bubbles
from tracekit.analysis.pipeline.bubbles import Pipeline
from tracekit.analysis.pipeline.sections import PIPELINE_SECTION
from tracekit.analysis.report import Report
from tracekit.analysis.table import rows_of
from tracekit.render.page.chart_contract import PipelineGaps, PipelineView

__all__ = ["MOST_ACTIONS", "pipeline_view"]

MOST_ACTIONS = 4096


def pipeline_view(report: Report, most_actions: int = MOST_ACTIONS) -> PipelineView | None:
    """Return the step of median length of one pipeline; None where no rank recorded actions of one.

    most_actions: ranks are left out, those of the last stages first, until there are no more actions than that.
    """
    pipeline = report.result(PIPELINE_SECTION)
    if not isinstance(pipeline, Pipeline) or not (actions := rows_of(pipeline, "typical_step")):
        return None
    first_stage: dict[int, int] = {}
    for action in actions:
        first_stage[action["rank"]] = min(action["stage"], first_stage.get(action["rank"], action["stage"]))
    ranks = sorted(first_stage, key=lambda rank: (first_stage[rank], rank))
    shown = ranks[: max(most_actions * len(ranks) // len(actions), 1)]
    begin_ns = min(action["start_ns"] for action in actions)
    length_ns = max(action["end_ns"] for action in actions) - begin_ns
    step = int(actions[0]["step"])
    actions = [action for action in actions if action["rank"] in shown]
    return PipelineView(
        step=step,
        length_ns=length_ns,
        ranks=shown,
        rank=[action["rank"] for action in actions],
        stage=[action["stage"] for action in actions],
        microbatch=[action["microbatch"] for action in actions],
        kind=[action["kind"] for action in actions],
        start_ns=[action["start_ns"] + action["wait_ns"] - begin_ns for action in actions],
        end_ns=[action["end_ns"] - begin_ns for action in actions],
        gaps=_gaps(pipeline, shown, step, begin_ns),
        text=" ".join(_texts(len(pipeline.measured), len(ranks), len(shown))) or None,
    )


def _texts(pipelines: int, ranks: int, shown: int) -> Iterator[str]:
    if pipelines > 1:
        yield f"This is one of {pipelines} pipelines."
    if shown < ranks:
        yield f"{shown} of its {ranks} ranks are shown."


def _gaps(pipeline: Pipeline, ranks: list[int], step: int, begin_ns: int) -> PipelineGaps | None:
    measured = next((one for one in pipeline.measured if ranks[0] in one.ranks), None)
    if measured is None:
        return None
    bubbles = [bubble for bubble in step_bubbles(measured, step) if bubble.rank in ranks]
    return PipelineGaps(
        rank=[bubble.rank for bubble in bubbles],
        start_ns=[bubble.start_ns - begin_ns for bubble in bubbles],
        end_ns=[bubble.end_ns - begin_ns for bubble in bubbles],
        cause=[bubble.cause for bubble in bubbles],
    )
