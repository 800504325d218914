"""What a table of operations shows: bubbles, critical path, slow ranks, stalls, and what each change would save."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.finding import Finding
from tracekit.analysis.operation_tables.as_run import exchanges_of, run_of_table
from tracekit.analysis.operation_tables.consistency import consistency_notes
from tracekit.analysis.operation_tables.critical_path import TableCriticalPath, table_critical_path
from tracekit.analysis.operation_tables.findings import table_findings
from tracekit.analysis.operation_tables.formats.straggler_analysis import check_operations, computations
from tracekit.analysis.operation_tables.graph.action_graph import build_action_graph
from tracekit.analysis.operation_tables.graph.megatron_graph import build_table_graph
from tracekit.analysis.operation_tables.graph.named_graph import NamedGraph
from tracekit.analysis.operation_tables.operations import OperationTable
from tracekit.analysis.operation_tables.outliers import Outliers, find_outliers
from tracekit.analysis.operation_tables.slow_ranks import SlowRank, find_slow_ranks
from tracekit.analysis.operation_tables.stalls import Stalls, describe_stalls
from tracekit.analysis.pipeline.bubbles import Pipeline, pipeline
from tracekit.analysis.section import Unavailable
from tracekit.analysis.step_time.step_lengths import first_steps_to_leave_out
from tracekit.analysis.whatif.whatif import WhatIf, what_if
from tracekit.errors import InputError
from tracekit.model.ranks import format_ranges

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TableDiagnosis", "diagnose_megatron_table", "diagnose_table"]

StepChoice = Callable[[int], bool]


@dataclass(frozen=True, kw_only=True)
class TableDiagnosis:
    """The analysis of a table.

    Attributes:
        path: as the user typed it.
        source: what kind of file it is.
        ranks: how many there are.
        replicas: how many replicas of the model.
        modelled: times within a step are those of a model, because the tracer has sums alone.
        whatif: what each change would save.
        pipeline: its bubbles; None where they are not known.
        findings: the largest saving first.
        notes: what was assumed, left out, or does not fit.
    """

    path: str
    source: str
    ranks: int
    replicas: int
    modelled: bool
    whatif: WhatIf
    pipeline: Pipeline | None
    critical_path: TableCriticalPath
    outliers: Outliers
    slow_ranks: tuple[SlowRank, ...]
    stalls: Stalls | None
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def diagnose_table(table: OperationTable, chosen: StepChoice | None = None) -> TableDiagnosis:
    """Return what a table shows. chosen: which steps count; by default all but a first one that is longer.

    Raises InputError when the steps cannot be replayed.
    """
    table, notes = _with_steps(table, chosen)
    run = run_of_table(table)
    bubbles = pipeline(run, exchanges_of(table.operations))
    if isinstance(bubbles, Unavailable) or len(bubbles.measured) < max(bubbles.pipelines, 1):
        raise InputError(
            f"{table.path}: the order of its operations contradicts what they wait for",
            hint="check stages, microbatches and kinds: forward k of stage s needs forward k of stage s - 1",
        )
    return _diagnosis(table, build_action_graph(table, bubbles.measured), bubbles, notes)


def diagnose_megatron_table(frame: pd.DataFrame, path: str, chosen: StepChoice | None = None) -> TableDiagnosis:
    """Return what a table with the columns of StragglerAnalysis shows. chosen: which steps count; by default all.

    Raises InputError when a value cannot be, or no step can be replayed.
    """
    rows = check_operations(frame, path)
    steps = sorted(set(rows["step"].tolist()))
    kept = _chosen(steps, chosen, path)
    rows = rows[rows["step"].isin(kept)].reset_index(drop=True)
    named = build_table_graph(rows, path)
    replayed = {int(step) for group in named.graph.step_groups for step in group.steps.tolist()}
    table, _ = _with_steps(computations(rows, path), replayed.__contains__)
    try:
        bubbles = pipeline(run_of_table(table), exchanges_of(table.operations))
    except InputError:
        bubbles = Unavailable(reason="stages are not those of a pipeline")
    return _diagnosis(table, named, None if isinstance(bubbles, Unavailable) else bubbles, [])


def _diagnosis(table: OperationTable, named: NamedGraph, bubbles: Pipeline | None, notes: list[str]) -> TableDiagnosis:
    result = what_if(named.graph)
    outliers = find_outliers(named)
    slow_ranks = find_slow_ranks(named)
    stalls = describe_stalls(outliers.outliers, result.steps)
    notes += [
        f"step {step} is slow as a whole: its forwards and backwards take {slowness:.2f} times their usual time"
        for step, slowness in sorted(outliers.slow_steps.items())[:3]
    ]
    if bubbles is not None:
        notes += consistency_notes(bubbles.measured, result.replay_error, modelled=table.modelled)
    operations = table.operations
    return TableDiagnosis(
        path=table.path,
        source=table.source,
        ranks=len(np.unique(operations.rank)),
        replicas=len(np.unique(operations.replica)),
        modelled=table.modelled,
        whatif=result,
        pipeline=bubbles,
        critical_path=table_critical_path(named),
        outliers=outliers,
        slow_ranks=slow_ranks,
        stalls=stalls,
        findings=table_findings(result, bubbles, slow_ranks, stalls, outliers),
        notes=(*table.notes, *notes, *result.notes),
    )


def _with_steps(table: OperationTable, chosen: StepChoice | None) -> tuple[OperationTable, list[str]]:
    """Return the table with the steps that count, and what is left out."""
    steps = np.unique(table.operations.step).tolist()
    kept, notes = _chosen(steps, chosen, table.path), []
    if chosen is None:
        left_out = first_steps_to_leave_out(run_of_table(table).ranks)
        kept -= {left.step for left in left_out}
        notes = [
            f"step {left.step} left out: it took {left.step_ns / 1e6:,.1f} ms, longer than all others (--steps 0: "
            "counts it)"
            for left in left_out
        ]
    rows = table.operations.rows(np.isin(table.operations.step, sorted(kept)))
    return replace(table, operations=rows), notes


def _chosen(steps: list[int], chosen: StepChoice | None, path: str) -> set[int]:
    kept = {step for step in steps if chosen is None or chosen(step)}
    if not kept:
        raise InputError(f"{path}: none of the selected steps is there", hint=f"recorded steps: {format_ranges(steps)}")
    return kept
