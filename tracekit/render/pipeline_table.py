"""Pipeline parallelism as a terminal shows it and as JSON.

Comes in: a `Pipeline`. Goes out: a table of stages and kinds of action, renderables; and plain values.
"""

from __future__ import annotations

from typing import Any

from tracekit.analysis.pipeline import Pipeline
from tracekit.render.console import milliseconds, table
from tracekit.schema import records

_KINDS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
_SHOWN_STAGES = 16

__all__ = ["pipeline_dict", "pipeline_table"]


def pipeline_dict(pipeline: Pipeline) -> dict[str, Any]:
    """The section of the JSON contract; `causes` of bubbles are not known."""
    return {
        "schedule": pipeline.schedule,
        "stages": pipeline.stages,
        "virtual_stages": pipeline.virtual_stages,
        "microbatches": pipeline.microbatches,
        "steps": pipeline.steps,
        "pipelines": pipeline.pipelines,
        "bubble_ratio": pipeline.bubble_ratio,
        "ideal_bubble_ratio": pipeline.ideal_bubble_ratio,
        "bubble_to_ideal_ratio": pipeline.bubble_to_ideal_ratio,
        "by_stage": records(pipeline.by_stage),
        "by_rank": [row | {"causes": None} for row in records(pipeline.by_rank)],
    }


def pipeline_table(pipeline: Pipeline) -> list[object]:
    """Stage by kind of action: how many a step and how long one takes."""
    stages: list[dict[str, Any]] = records(pipeline.by_stage)
    kinds = [kind for kind in _KINDS if any(row["kind"] == kind for row in stages)]
    cells = {(row["stage"], row["kind"]): row for row in stages}
    numbers = sorted({row["stage"] for row in stages})
    ranks: dict[int, list[str]] = {}
    for rank in records(pipeline.by_rank):
        for stage in rank["stages"]:
            ranks.setdefault(stage, []).append(str(rank["rank"]))
    runs = max(pipeline.steps * pipeline.pipelines, 1)
    rows = [
        (
            str(stage),
            _shortened(ranks.get(stage, [])),
            *(
                f"{row['count'] / runs:.3g} x {milliseconds(row['mean_ns'])}" if row is not None else "n/a"
                for row in (cells.get((stage, kind)) for kind in kinds)
            ),
        )
        for stage in numbers[:_SHOWN_STAGES]
    ]
    microbatches = "1 microbatch" if pipeline.microbatches == 1 else f"{pipeline.microbatches} microbatches"
    title = f"Pipeline ({pipeline.schedule}, {microbatches}): actions a step x mean ms"
    if len(numbers) > _SHOWN_STAGES:
        title += f"; the first {_SHOWN_STAGES} of {len(numbers)} stages, --json has all"
    if pipeline.bubble_ratio is not None:
        title += f"; bubbles take {pipeline.bubble_ratio:.0%} of its time"
    if pipeline.bubble_ratio is not None and pipeline.ideal_bubble_ratio is not None:
        title += f" (equal stages: {pipeline.ideal_bubble_ratio:.0%})"
    return table(title, ("stage", "rank", *(_KINDS[kind] for kind in kinds)), rows, left=2)


def _shortened(ranks: list[str]) -> str:
    return ", ".join(ranks) if len(ranks) <= 4 else f"{', '.join(ranks[:3])}, ..."
