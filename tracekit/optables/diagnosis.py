"""What a table of operations shows: bubbles, critical path, slow ranks, stalls, and what each change would save."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from tracekit.errors import InputError
from tracekit.explain.pipeline.bubble_causes import MeasuredPipeline
from tracekit.explain.pipeline.bubbles import Pipeline, pipeline
from tracekit.explain.section import Unavailable
from tracekit.explain.step_time.step_lengths import first_steps_to_leave_out
from tracekit.explain.whatif.changes import Change
from tracekit.explain.whatif.whatif import WhatIf, what_if, with_fields
from tracekit.findings.finding import Finding
from tracekit.model.run import format_ranges
from tracekit.optables import straggler_analysis
from tracekit.optables.findings import persistent_straggler, slow_transfers
from tracekit.optables.findings import stalls as finding_of_stalls
from tracekit.optables.operation_table import OperationTable, read_frame, read_table
from tracekit.optables.pipelines import NamedGraph, graph_of_table, run_of_table
from tracekit.optables.stragglers import Outliers, SlowRank, Stalls, describe_stalls, find_outliers, find_slow_ranks
from tracekit.replay.replay import critical_chains

StepChoice = Callable[[int], bool]
_EARLY = 0.01  # of the messages
_SAME_TIME_NS = 1000
_REPLAY_ERROR = 0.1
_NOTABLE = 0.005  # of the mean step
_NOTABLE_OF_ITS_STEP = 0.02


@dataclass(frozen=True, kw_only=True)
class TableDiagnosis:
    """The analysis of a table.

    Attributes:
        table: what was read.
        whatif: what each change would save.
        pipeline: its bubbles; None where they are not known.
        critical_path: time on the longest chains over all ranks, in the replay of what was measured. Columns `step`,
            `rank`, `operation`, `part` (compute, transfer or pause) and `total_ns`, which sums to the steps.
        findings: the largest saving first.
        notes: what was assumed, left out, or does not fit.
    """

    table: OperationTable
    whatif: WhatIf
    pipeline: Pipeline | None
    critical_path: pd.DataFrame
    outliers: Outliers
    slow_ranks: tuple[SlowRank, ...]
    stalls: Stalls | None
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def diagnose_file(path: Path, chosen: StepChoice | None, unit: str | None) -> TableDiagnosis:
    """Return what a file shows.

    chosen: which steps count; by default all but a first one that is longer. unit: of times whose column names none.

    Raises InputError when it cannot be read or replayed.
    """
    frame = read_frame(path)
    if set(straggler_analysis.COLUMNS) <= set(frame.columns):
        return diagnose_operations(frame, str(path), chosen)
    return diagnose_table(read_table(frame, str(path), unit), chosen)


def diagnose_table(table: OperationTable, chosen: StepChoice | None = None) -> TableDiagnosis:
    """Return what a table shows. Raises InputError when the steps cannot be replayed."""
    notes: list[str] = []
    if chosen is None:
        left_out = {left.step: left.step_ns / 1e6 for left in first_steps_to_leave_out(run_of_table(table).ranks)}
        why = "longer than all others (--steps 0: counts it)"
        notes = [f"step {step} left out: it took {time_ms:,.1f} ms, {why}" for step, time_ms in left_out.items()]
        chosen = (set(table.operations["step"]) - left_out.keys()).__contains__
    table = replace(table, operations=_chosen(table.operations, chosen, table.path))
    bubbles = pipeline(run_of_table(table))
    if isinstance(bubbles, Unavailable) or len(bubbles.measured) < max(bubbles.pipelines, 1):
        raise InputError(
            f"{table.path}: the order of its operations contradicts what they wait for",
            hint="check stages, microbatches and kinds: forward k of stage s needs forward k of stage s - 1",
        )
    return _diagnosis(table, graph_of_table(table, bubbles.measured), bubbles, notes)


def diagnose_operations(frame: pd.DataFrame, path: str, chosen: StepChoice | None = None) -> TableDiagnosis:
    """Return what a table with the columns of StragglerAnalysis shows; by default all steps count.

    Raises InputError when a value cannot be, or no step can be replayed.
    """
    rows = _chosen(straggler_analysis.read_operations(frame, path), chosen or (lambda step: True), path)
    named = straggler_analysis.graph_of_operations(rows, path)
    replayed = np.concatenate([group.steps for group in named.graph.step_groups])
    table = straggler_analysis.computations(rows[rows["step"].isin(replayed)], path)
    try:
        bubbles = pipeline(run_of_table(table))
    except InputError:
        bubbles = Unavailable(reason="stages are not those of a pipeline")
    return _diagnosis(table, named, None if isinstance(bubbles, Unavailable) else bubbles, [])


def _chosen(rows: pd.DataFrame, chosen: StepChoice, path: str) -> pd.DataFrame:
    steps = sorted(set(rows["step"].tolist()))
    kept = [step for step in steps if chosen(step)]
    if not kept:
        raise InputError(f"{path}: none of the selected steps is there", hint=f"recorded steps: {format_ranges(steps)}")
    return rows[rows["step"].isin(kept)].reset_index(drop=True)


def _diagnosis(table: OperationTable, named: NamedGraph, bubbles: Pipeline | None, notes: list[str]) -> TableDiagnosis:
    result = with_fields(what_if(named.graph), trials=None)
    outliers, slow_ranks = find_outliers(named), find_slow_ranks(named)
    stalls = describe_stalls(outliers.outliers, result.steps)
    notes += [
        f"step {step} is slow as a whole: its forwards and backwards take {slowness:.2f} times their usual time"
        for step, slowness in sorted(outliers.slow_steps.items())[:3]
    ]
    notes += _early_starts(bubbles.measured if bubbles is not None else ())
    if abs(result.replay_error) > _REPLAY_ERROR:
        notes.append(f"the replay is off by {result.replay_error:+.0%}: do not trust savings that are smaller")
    return TableDiagnosis(
        table=table,
        whatif=result,
        pipeline=bubbles,
        critical_path=_critical_path(named),
        outliers=outliers,
        slow_ranks=slow_ranks,
        stalls=stalls,
        findings=_findings(result, bubbles, slow_ranks, stalls, outliers),
        notes=(*table.notes, *notes, *result.notes),
    )


def _early_starts(pipelines: Sequence[MeasuredPipeline]) -> Iterator[str]:
    """Yield a note if operations begin before what they need has ended: then clocks disagree."""
    before_ns = [
        (order.end_ns[edges.producers] - order.start_ns[edges.consumers]).ravel()
        for of_pipeline in pipelines
        for order, edges in zip(of_pipeline.action_orders, of_pipeline.edges, strict=True)
    ]
    every_ns = np.concatenate([np.zeros(1), *before_ns])
    early = float((every_ns > _SAME_TIME_NS).mean())
    if early > _EARLY:
        yield (
            f"{early:.0%} of the operations begin before what they need has ended, by up to {every_ns.max() / 1e6:.2f} "
            "ms: clocks of ranks differ, or times are those of hosts and not of devices; transfers and late peers are "
            "uncertain by as much"
        )


def _critical_path(named: NamedGraph) -> pd.DataFrame:
    """Return the time on the longest chains. The times of a step sum to its replayed length, to the ns."""
    chains = []
    for group in named.graph.step_groups:
        chain = critical_chains(group.graph, group.duration_ns)
        type_ = group.type[chain.operation]
        transfers = np.isin(group.kind[chain.operation], list(named.graph.communication_kinds))
        part = np.where(transfers, "transfer", np.where(np.isin(type_, named.pause_types), "pause", "compute"))
        reached_ns = pd.Series(chain.length_ns).groupby(chain.replica).cumsum().round().astype(np.int64)
        columns = {
            "step": group.steps[chain.replica],
            "rank": group.rank[chain.operation],
            "operation": np.array(named.graph.types)[type_],
            "part": part,
            "total_ns": reached_ns - reached_ns.groupby(chain.replica).shift(fill_value=0),
        }
        chains.append(pd.DataFrame(columns))
    keys = ["step", "rank", "operation", "part"]
    return pd.concat(chains).groupby(keys)["total_ns"].sum().reset_index()


def _findings(
    result: WhatIf, pipeline: Pipeline | None, slow_ranks: Sequence[SlowRank], stalls: Stalls | None, outliers: Outliers
) -> tuple[Finding, ...]:
    """Return the findings: slow ranks, an uneven stage, stalls, bubbles."""
    slow = {one.rank for one in slow_ranks}
    found = [_slow_rank(one, result) for one in slow_ranks]
    if stalls is not None and _are_notable(outliers, result):
        found.append(_stalls(stalls, outliers, result, others_are_slow=bool(slow_ranks)))
    found += _slow_transfers(outliers, result)
    for finding in pipeline.findings if pipeline is not None else ():
        if finding.remedy != "stages":
            found.append(finding)
        elif not slow & set(finding.ranks):  # a slow rank makes its stage uneven
            found.append(_with_saving(finding, _change(result, "stages")))
    return tuple(sorted(found, key=lambda finding: (finding.severity == "info", -(finding.saving_ns or 0))))


def _are_notable(outliers: Outliers, result: WhatIf) -> bool:
    """Return whether stalls cost the mean step something, or one of them costs its own step more."""
    largest_ns = max((outlier.saves_ns for outlier in outliers.outliers if not outlier.waits_on_others), default=0)
    return (
        outliers.stalls_ns >= _NOTABLE * result.measured_ns or largest_ns >= _NOTABLE_OF_ITS_STEP * result.measured_ns
    )


def _slow_rank(slow: SlowRank, result: WhatIf) -> Finding:
    finding = persistent_straggler(
        rank=slow.rank,
        certainty=slow.certainty,
        cause="slow_compute",
        evidence={
            "beyond_ns": slow.beyond_ns,
            "share": slow.share,
            "peers": slow.peers,
            "shown": slow.shown,
            "steps": slow.steps,
        },
        remedy="ranks",
        ranks=(slow.rank,),
    )
    return _with_saving(finding, _change(result, "ranks", slow.rank))


def _stalls(stalls: Stalls, outliers: Outliers, result: WhatIf, *, others_are_slow: bool) -> Finding:
    work = [outlier for outlier in outliers.outliers if not outlier.waits_on_others]
    finding = finding_of_stalls(
        severity="info" if stalls.pattern == "single" else "warning",
        rank=stalls.rank,
        step=work[0].step,
        certainty="sure" if all(outlier.certainty == "sure" for outlier in work[:3]) else "likely",
        cause="imbalance" if stalls.pattern == "microbatches" else "stall",
        ranks=stalls.ranks,
        evidence={
            "pattern": stalls.pattern,
            "count": stalls.count,
            "beyond_ns": stalls.beyond_ns,
            "steps_with_it": stalls.steps,
            "steps": result.steps,
            "others_are_slow": others_are_slow,
        },
    )
    return _replayed(finding, outliers.stalls_ns, result)


def _slow_transfers(outliers: Outliers, result: WhatIf) -> list[Finding]:
    transfers = [outlier for outlier in outliers.outliers if outlier.waits_on_others]
    if not transfers or outliers.transfers_ns < _NOTABLE * result.measured_ns:
        return []
    longest = max(transfers, key=lambda outlier: outlier.duration_ns - outlier.usual_ns)
    finding = slow_transfers(
        severity="info",
        step=longest.step,
        certainty=longest.certainty,
        cause="transfer",
        evidence={
            "steps_with_it": len({outlier.step for outlier in transfers}),
            "steps": result.steps,
            "operation": longest.operation,
            "duration_ns": longest.duration_ns,
            "usual_ns": longest.usual_ns,
        },
    )
    return [_replayed(finding, outliers.transfers_ns, result)]


def _replayed(finding: Finding, saving_ns: int, result: WhatIf) -> Finding:
    return replace(finding, saving_ns=saving_ns, saving_error_ns=round(abs(saving_ns * result.replay_error)))


def _change(result: WhatIf, remedy: str, rank: int | None = None) -> Change | None:
    fitting = (change for change in result.changes if change.remedy == remedy and change.rank == rank)
    return next(fitting, None)


def _with_saving(finding: Finding, change: Change | None) -> Finding:
    if change is None:
        return finding
    return replace(finding, saving_ns=change.saves_ns_per_step, saving_error_ns=change.error_ns)
