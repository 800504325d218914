"""What a table of operations shows, in one screen and as JSON; below the screen, all tables."""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd

from tracekit.model.table import rows_of
from tracekit.model.texts import count_text, milliseconds
from tracekit.optables.diagnosis import TableDiagnosis
from tracekit.optables.stragglers import Outlier
from tracekit.render.answer import LINES, finding_lines, wrapped_lines
from tracekit.render.console import statement, table
from tracekit.render.sections.json import pipeline_dict, whatif_dict
from tracekit.render.sections.pictures import bubble_table, pipeline_grid, pipeline_table
from tracekit.render.sections.text import replay_summary, whatif_table

_OF_FINDING = ("severity", "text", "action", "certainty", "cause", "step", "saving_ns", "saving_error_ns")
_SHOWN_OUTLIERS = 3
_SHOWN_CHANGES = 2
_SHOWN_STEPS = 32
_SHOWN_RANKS = 3


def table_dict(diagnosis: TableDiagnosis) -> dict[str, Any]:
    """Return what the JSON result says of a table."""
    pipeline, path, operations = diagnosis.pipeline, diagnosis.critical_path, diagnosis.table.operations
    by_rank = path.groupby(["rank", "operation"], as_index=False).agg({"total_ns": "sum"}).query("total_ns > 0")
    by_rank = by_rank.assign(share=by_rank["total_ns"] / max(path["total_ns"].sum(), 1))
    return {
        "whatif": whatif_dict(diagnosis.whatif),
        "operation_table": {
            "source": diagnosis.table.source,
            "ranks": operations["rank"].nunique(),
            "replicas": operations["replica"].nunique(),
        },
        "pipeline": None if pipeline is None else pipeline_dict(pipeline),
        "critical_path": by_rank.sort_values("total_ns", ascending=False, kind="stable").to_dict("records"),
        "critical_path_by_step": _by_step(path).to_dict("records"),
        "outliers": [dataclasses.asdict(outlier) for outlier in diagnosis.outliers.outliers],
        "slow_steps": {str(step): slowness for step, slowness in diagnosis.outliers.slow_steps.items()},
        "slow_ranks": [dataclasses.asdict(slow) for slow in diagnosis.slow_ranks],
        "stalls": None if diagnosis.stalls is None else dataclasses.asdict(diagnosis.stalls),
        "findings": [
            {"ranks": list(finding.concerned), **{name: getattr(finding, name) for name in _OF_FINDING}}
            for finding in diagnosis.findings
        ],
    }


def _by_step(path: pd.DataFrame) -> pd.DataFrame:
    """Return the length of the critical path of each step, its parts, and the rank that is on it for longest."""
    lengths = path.pivot_table(values="total_ns", index="step", columns="part", aggfunc="sum", fill_value=0)
    lengths = lengths.reindex(columns=["compute", "transfer", "pause"], fill_value=0).add_suffix("_ns")
    of_rank = path.groupby(["step", "rank"], as_index=False).agg({"total_ns": "sum"})
    longest = of_rank.sort_values("total_ns", ascending=False, kind="stable").drop_duplicates("step").set_index("step")
    columns = {"step_ns": lengths.sum(axis=1), "rank": longest["rank"], "rank_ns": longest["total_ns"]}
    return lengths.assign(**columns).astype("int64").reset_index()


def table_answer(diagnosis: TableDiagnosis, width: int) -> list[object]:
    """Return one screen: what was read, the findings, the outliers, the critical path, and what else would save."""
    head = wrapped_lines(_head(diagnosis), "", width, 2, "bold")
    tail = [*_outliers(diagnosis, width), *_critical_path(diagnosis, width), *_rest(diagnosis, width)]
    room = LINES - len(head) - len(tail) - 2
    findings: list[object] = []
    for number, finding in enumerate(diagnosis.findings, start=1):
        lines = finding_lines(number, finding, diagnosis.whatif.measured_ns, width)
        more = len(diagnosis.findings) > number
        if number > 1 and len(findings) + len(lines) + more > room:
            left = len(diagnosis.findings) - number + 1
            findings += wrapped_lines(f"{count_text(left, 'more finding')}: --full", "   ", width, 1, "dim")
            break
        findings += lines
    return [*head, "", *(findings or wrapped_lines("nothing stands out", "", width, 1, "")), "", *tail]


def _head(diagnosis: TableDiagnosis) -> str:
    pipeline, result = diagnosis.pipeline, diagnosis.whatif
    operations = diagnosis.table.operations
    phrases, replicas = [count_text(operations["rank"].nunique(), "rank")], operations["replica"].nunique()
    if pipeline is not None:
        beside = f" x {replicas} replicas" if replicas > 1 else ""
        phrases += [f"{count_text(pipeline.stages, 'stage')}{beside}"]
        phrases += [f"{pipeline.schedule}, {count_text(pipeline.microbatches, 'microbatch', 'microbatches')}"]
    phrases.append(f"{count_text(result.steps, 'step')} of {milliseconds(result.measured_ns)} ms")
    return f"{diagnosis.table.path}: {diagnosis.table.source}; {' · '.join(phrases)}"


def _outliers(diagnosis: TableDiagnosis, width: int) -> list[object]:
    saving = [outlier for outlier in diagnosis.outliers.outliers if outlier.saves_ns > 0]
    if not saving:
        return []
    shown = saving[: _SHOWN_OUTLIERS - (len(diagnosis.findings) > 1)]
    title = "What removing one outlier would save of its step (ms)"
    if len(shown) < len(saving):
        title += f"; {len(shown)} of {len(saving)}, --full has all"
    lines = [
        f"step {outlier.step}, rank {outlier.rank}, {_name(outlier)}: {milliseconds(outlier.duration_ns)} instead of "
        f"{milliseconds(outlier.usual_ns)}, saves {milliseconds(outlier.saves_ns)}"
        + (", likely" if outlier.certainty == "likely" else "")
        for outlier in shown
    ]
    return [
        *wrapped_lines(title, "", width, 1, ""),
        *(part for line in lines for part in wrapped_lines(line, "  ", width, 2, "")),
    ]


def _name(outlier: Outlier) -> str:
    name = outlier.operation if outlier.microbatch is None else f"{outlier.operation} {outlier.microbatch}"
    return name if outlier.stage is None else f"{name} of stage {outlier.stage}"


def _critical_path(diagnosis: TableDiagnosis, width: int) -> list[object]:
    path = diagnosis.critical_path
    whole_ns = max(path["total_ns"].sum(), 1)
    of_parts, of_ranks = (path.groupby(key)["total_ns"].sum() / whole_ns for key in ("part", "rank"))
    names = {"compute": "work", "transfer": "messages and collectives", "pause": "pauses"}
    phrases = [f"{name} {of_parts.get(part, 0.0):.0%}" for part, name in names.items()]
    of_ranks = of_ranks[of_ranks > 0].sort_values(ascending=False, kind="stable")
    longest = [f"rank {rank} {share:.0%}" for rank, share in of_ranks.head(_SHOWN_RANKS).items()]
    more = f", {len(of_ranks) - len(longest)} more" if len(of_ranks) > len(longest) else ""
    text = f"Critical path: {', '.join(phrases)}; {', '.join(longest)}{more}"
    return [*wrapped_lines(text, "", width, 2, "")]


def _rest(diagnosis: TableDiagnosis, width: int) -> list[object]:
    """Return changes that no finding names, the length of the step as measured, replayed and ideal, and notes."""
    result = diagnosis.whatif
    named = {(finding.remedy, finding.rank if finding.remedy == "ranks" else None) for finding in diagnosis.findings}
    others = [change for change in result.changes if (change.remedy, change.rank) not in named][:_SHOWN_CHANGES]
    lines: list[object] = []
    for change in others:
        text = (
            f"{change.what}: saves {milliseconds(change.saves_ns_per_step)} ± {milliseconds(change.error_ns)} ms "
            f"a step ({change.share:.0%})"
        )
        lines += wrapped_lines(text, "What if: ", width, 2, "")
    lines += wrapped_lines(replay_summary(result), "", width, 3, "")
    if diagnosis.notes:
        more = f" (and {len(diagnosis.notes) - 1} more: --full)" if len(diagnosis.notes) > 1 else ""
        lines += wrapped_lines(diagnosis.notes[0] + more, "· ", width, 3, "dim")
    return lines


def table_details(diagnosis: TableDiagnosis, width: int) -> list[object]:
    """Return all tables: the pipeline, its bubbles and a picture, outliers, the critical path by step, what-if."""
    blocks: list[object] = [""]
    for number, finding in enumerate(diagnosis.findings, start=1):
        blocks += finding_lines(number, finding, diagnosis.whatif.measured_ns, width)
    blocks.append("")
    if diagnosis.pipeline is not None:
        picture = pipeline_grid(rows_of(diagnosis.pipeline, "typical_step"), width)
        blocks += [*pipeline_table(diagnosis.pipeline), *bubble_table(diagnosis.pipeline), *picture]
    if diagnosis.outliers.outliers:
        cells: list[tuple[str, ...]] = [
            (
                str(one.step),
                str(one.rank),
                _name(one),
                *map(milliseconds, (one.duration_ns, one.usual_ns, one.saves_ns)),
                one.certainty,
            )
            for one in diagnosis.outliers.outliers
        ]
        blocks += table(
            "Outliers (ms)", ("step", "rank", "operation", "took", "usual", "saves", "certainty"), cells, left=3
        )
    steps = _by_step(diagnosis.critical_path)
    title = "Critical path by step (ms)"
    if len(steps) > _SHOWN_STEPS:
        title += f"; the first {_SHOWN_STEPS} of {len(steps)}, --json has all"
    columns = ("step", "length", "work", "messages", "pauses", "longest on", "there")
    cells = [
        (
            str(row["step"]),
            *(milliseconds(row[f"{key}_ns"]) for key in ("step", "compute", "transfer", "pause")),
            f"rank {row['rank']}",
            milliseconds(row["rank_ns"]),
        )
        for row in steps.head(_SHOWN_STEPS).to_dict("records")
    ]
    blocks += table(title, columns, cells)
    blocks += whatif_table(dataclasses.replace(diagnosis.whatif, notes=()))
    blocks += [statement("info", note) for note in diagnosis.notes]
    return blocks
