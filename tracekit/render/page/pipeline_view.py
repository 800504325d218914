"""What the page shows of a single step: a pipeline as it ran, or what hides FSDP's all-gathers on one rank.

A pipeline has its actions, and its bubbles with their causes. All-gathers are in the order in which modules are used.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tracekit.analysis.events.phases import PHASES
from tracekit.analysis.fsdp.parts import FSDP_GATHERS
from tracekit.analysis.pipeline.bubble_causes import step_bubbles
from tracekit.analysis.pipeline.bubbles import Pipeline
from tracekit.analysis.pipeline.sections import PIPELINE_SECTION
from tracekit.analysis.report import Report
from tracekit.analysis.step_time.step_lengths import typical_step
from tracekit.analysis.table import rows_of
from tracekit.render.page.chart_contract import FsdpLadder, PipelineGaps, PipelineView

__all__ = ["fsdp_ladder", "pipeline_view"]

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


def fsdp_ladder(report: Report) -> FsdpLadder | None:
    """Return the step of median length on the rank that waits longest for its gathers; None without gathers."""
    step = typical_step(report.run)
    ladders = [
        (s.rank, s[FSDP_GATHERS].rows(s[FSDP_GATHERS].step == step))
        for s in report.run.ranks
        if FSDP_GATHERS.name in s.parts  # not where only other sections were asked for
    ]
    rank, gathers = max(ladders, key=lambda ladder: int(ladder[1].wait_ns.sum()), default=(0, None))
    if step is None or gathers is None or not len(gathers):
        return None
    return FsdpLadder(
        rank=rank,
        step=step,
        module=gathers.module.tolist(),
        phase=[PHASES[phase] if phase >= 0 else None for phase in gathers.phase.tolist()],
        ahead=gathers.ahead.tolist(),
        transfer_ns=gathers.transfer_ns.tolist(),
        wait_ns=gathers.wait_ns.tolist(),
        compute_before_ns=[None, *np.maximum(gathers.compute_ns[:-1], 0).tolist()],
    )
