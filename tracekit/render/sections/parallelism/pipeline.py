"""Pipeline parallelism in the terminal and as JSON: stages by kind of action, bubbles, and a picture of a step."""

from __future__ import annotations

import dataclasses
import string
from typing import TYPE_CHECKING, Any

from tracekit.analysis.pipeline.advice import FILLED
from tracekit.analysis.pipeline.bubble_causes import CAUSES
from tracekit.analysis.pipeline.bubbles import Pipeline
from tracekit.analysis.pipeline.sections import PIPELINE_SECTION
from tracekit.analysis.table import rows_of
from tracekit.model.quantities import count_text, milliseconds
from tracekit.model.run import Run
from tracekit.model.spans import ACTION_NAMES
from tracekit.render.console import table
from tracekit.render.section_view import SectionView

if TYPE_CHECKING:
    from rich.text import Text

_SHOWN_STAGES = 16
_SHOWN_RANKS = 16

__all__ = ["PIPELINE_VIEW", "bubble_table", "pipeline_dict", "pipeline_grid", "pipeline_table"]


def pipeline_dict(pipeline: Pipeline) -> dict[str, Any]:
    """Return the section of the JSON contract."""
    uneven = pipeline.uneven_stage
    return {
        "schedule": pipeline.schedule,
        "schedule_inferred": pipeline.schedule_inferred,
        "stages": pipeline.stages,
        "virtual_stages": pipeline.virtual_stages,
        "microbatches": pipeline.microbatches,
        "steps": pipeline.steps,
        "pipelines": pipeline.pipelines,
        "bubble_ratio": pipeline.bubble_ratio,
        "ideal_bubble_ratio": pipeline.ideal_bubble_ratio,
        "ideal_basis": pipeline.ideal_basis,
        "bubble_to_ideal_ratio": pipeline.bubble_to_ideal_ratio,
        "filled_ratio": pipeline.filled_ratio,
        "causes": None if pipeline.causes_ns is None else dict(pipeline.causes_ns),
        "replay_error": pipeline.replay_error,
        "uneven_stage": None if uneven is None else dataclasses.asdict(uneven),
        "moves": [dataclasses.asdict(change) for change in pipeline.changes],
        "by_stage": rows_of(pipeline, "by_stage"),
        "by_rank": [_rank_dict(row) for row in rows_of(pipeline, "by_rank")],
    }


def _rank_dict(row: dict[str, Any]) -> dict[str, Any]:
    causes = {f"{cause}_ns": row[f"{cause}_ns"] for cause in CAUSES}
    known = None not in causes.values()
    return {**{name: row[name] for name in row if name not in causes}, "causes": causes if known else None}


def pipeline_table(pipeline: Pipeline) -> list[object]:
    """Return stages by kind of action: how many a step, and how long one takes."""
    stages = rows_of(pipeline, "by_stage")
    kinds = [kind for kind in ACTION_NAMES if any(row["kind"] == kind for row in stages)]
    cells = {(row["stage"], row["kind"]): row for row in stages}
    numbers = sorted({row["stage"] for row in stages})
    ranks: dict[int, list[str]] = {}
    for rank in rows_of(pipeline, "by_rank"):
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
    microbatches = count_text(pipeline.microbatches, "microbatch", "microbatches")
    title = f"Pipeline ({pipeline.schedule}, {microbatches}): actions a step x mean ms"
    if len(numbers) > _SHOWN_STAGES:
        title += f"; the first {_SHOWN_STAGES} of {len(numbers)} stages, --json has all"
    return table(title, ("stage", "rank", *(ACTION_NAMES[kind] for kind in kinds)), rows, left=2)


def bubble_table(pipeline: Pipeline) -> list[object]:
    """Return bubbles by rank and cause; nothing where bubbles are not known."""
    if pipeline.bubble_ratio is None or pipeline.causes_ns is None:
        return []
    rows = rows_of(pipeline, "by_rank")
    shown = sorted(sorted(rows, key=lambda row: -row["bubble_ns"])[:_SHOWN_RANKS], key=lambda row: row["rank"])
    title = f"Bubbles, {pipeline.bubble_ratio:.0%} of the pipeline's time, by cause (ms a step)"
    if pipeline.ideal_bubble_ratio is not None:
        title += f"; the least for this order is {pipeline.ideal_bubble_ratio:.0%}"
    if _is_filled(pipeline):
        title += f"; the steps before and after fill at least {pipeline.filled_ratio:.0%} of them"
    if len(shown) < len(rows):
        title += f"; the {len(shown)} largest of {len(rows)}, --json has all"
    cells = [
        (
            str(row["rank"]),
            f"{milliseconds(row['bubble_ns'] / pipeline.steps)} {row['bubble_ratio']:>4.0%}",
            *(milliseconds(row[f"{cause}_ns"] / pipeline.steps) for cause in CAUSES),
        )
        for row in shown
    ]
    columns = ("rank", "bubble", "warm-up", "drain", "uneven\nstages", "transfer", "late\npeers", "other")
    return table(title, columns, cells)


def _shortened(ranks: list[str]) -> str:
    return ", ".join(ranks) if len(ranks) <= 4 else f"{', '.join(ranks[:3])}, ..."


_MOST_RANKS = 16
_IDLE = "·"
_SIGNS = {"F": string.digits, "B": string.ascii_lowercase, "I": string.ascii_lowercase, "W": string.ascii_uppercase}
_STYLES = {"F": "blue", "B": "green", "I": "green", "W": "cyan"}


def _is_filled(pipeline: Pipeline) -> bool:
    return pipeline.filled_ratio is not None and pipeline.filled_ratio >= FILLED


def pipeline_grid(actions: list[dict[str, Any]], width: int, *, filled: bool = False) -> list[object]:
    """Return a picture of one step, `width` characters wide; nothing without actions.

    `actions`: rows of the table PIPELINE_ACTIONS. `filled`: ranks run other steps in between.
    """
    from rich.text import Text

    if not actions:
        return []
    ranks = list(dict.fromkeys(row["rank"] for row in actions))
    begin_ns = min(row["start_ns"] for row in actions)
    span_ns = max(row["end_ns"] for row in actions) - begin_ns
    label = len(f"rank {max(ranks)}") + 2
    cells = max(min(width - label, 120), 10)
    numbered = any(row["microbatch"] > 9 for row in actions)
    title = f"Step {actions[0]['step']} of the pipeline, {milliseconds(span_ns)} ms: microbatches forward 0 1 2, "
    title += "backward a b c" + (", weight gradients A B C" if any(row["kind"] == "W" for row in actions) else "")
    title += f", {'idle or in other steps' if filled else 'idle'} {_IDLE}" + (
        "; they repeat after 9 and z" if numbered else ""
    )
    lines: list[object] = [Text(title, style="bold")]
    for rank in ranks[:_MOST_RANKS]:
        of_rank = [row for row in actions if row["rank"] == rank]
        lines.append(Text.assemble(f"rank {rank}".ljust(label), _row(of_rank, begin_ns, span_ns, cells), no_wrap=True))
    if len(ranks) > _MOST_RANKS:
        lines.append(Text(f"{len(ranks) - _MOST_RANKS} more ranks; --json --actions has all"))
    return [*lines, Text("")]


def _row(actions: list[dict[str, Any]], begin_ns: int, span_ns: int, cells: int) -> Text:
    """Return for each cell the action that covers most of it, if it covers half."""
    from rich.text import Text

    taken_ns = [0] * cells
    signs = [_IDLE] * cells
    styles = ["dim"] * cells
    for row in actions:
        start_ns, end_ns = row["start_ns"] - begin_ns, row["end_ns"] - begin_ns
        series = _SIGNS[row["kind"]]
        for cell in range(start_ns * cells // span_ns, min(end_ns * cells // span_ns + 1, cells)):
            edge_ns = cell * span_ns // cells, (cell + 1) * span_ns // cells
            covered_ns = min(end_ns, edge_ns[1]) - max(start_ns, edge_ns[0])
            if covered_ns > max(taken_ns[cell], (edge_ns[1] - edge_ns[0]) // 2):
                taken_ns[cell] = covered_ns
                signs[cell], styles[cell] = series[row["microbatch"] % len(series)], _STYLES[row["kind"]]
    return Text.assemble(*zip(signs, styles, strict=True))


def _text(pipeline: Pipeline, run: Run, width: int) -> list[object]:
    picture = pipeline_grid(rows_of(pipeline, "typical_step"), width, filled=_is_filled(pipeline))
    return [*pipeline_table(pipeline), *bubble_table(pipeline), *picture]


PIPELINE_VIEW = SectionView(
    section=PIPELINE_SECTION,
    json=lambda result: {"pipeline": pipeline_dict(result)},
    text=_text,
    null_keys=("pipeline",),
)
