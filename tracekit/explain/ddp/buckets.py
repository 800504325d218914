"""Which parameters DDP reduces together, when each bucket was reduced, and what other buckets would expose.

The section has gradients that the training loop averages by hand, too.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tracekit.explain.communication.collectives import TimesOfGroup, group_times
from tracekit.explain.ddp import tables
from tracekit.explain.ddp.backward_passes import rows_of_reductions
from tracekit.explain.ddp.bucket_findings import bucket_findings
from tracekit.explain.ddp.bucket_reductions import (
    bucket_reductions,
    ddp_passes,
    gradient_reductions,
    inferred_modules,
)
from tracekit.explain.ddp.bucket_whatif import BucketWhatIf, bucket_whatif
from tracekit.explain.ddp.gradient_times import gradient_times
from tracekit.explain.ddp.manual_gradients import manual_data_parallel, manual_gradients
from tracekit.explain.ddp.micro_batches import early_reductions, micro_batch_findings
from tracekit.explain.ddp.tables import (
    BUCKET_REDUCTIONS,
    DDP_MODULES,
    DDP_PASSES,
    EARLY_REDUCTIONS,
    GRADIENT_TIMES,
    MANUAL_GRADIENT_TIMES,
    MANUAL_REDUCTIONS,
    WHOLE,
    BucketReductions,
    DdpModules,
    DdpPasses,
    GradientTimes,
)
from tracekit.explain.section import Section, Unavailable
from tracekit.findings.finding import Finding
from tracekit.model.communication import bus_factor
from tracekit.model.events import ABSENT
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary
from tracekit.model.table import Frame
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.stats.grouped import grouped


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """The bucket map and the times of all reductions in complete steps.

    Attributes:
        bucket_map: rows of tables.BUCKET_MAP; empty when no DDP module was recorded.
        times: rows of tables.BUCKETS, one for each reduction.
        by_index: rows of tables.BUCKETS_BY_INDEX, one for each bucket.
        whatif: rows of tables.BUCKET_WHATIF, one for each limit of the size.
        whatif_unavailable: why there are no such rows.
        micro_batches: forward passes for each backward pass that reduces; None where forward passes are not labelled.
    """

    bucket_map: Frame = Frame(tables.BUCKET_MAP)
    times: Frame = Frame(tables.BUCKETS)
    by_index: Frame = Frame(tables.BUCKETS_BY_INDEX)
    whatif: Frame = Frame(tables.BUCKET_WHATIF)
    whatif_unavailable: Unavailable | None
    micro_batches: int | None
    picture: BucketPicture | None
    findings: tuple[Finding, ...]


def buckets(run: Run) -> Buckets:
    """Return the tables and findings.

    The bucket map is equal on all ranks: that of the lowest rank that has one is taken.
    """
    of_all = next((summary for summary in run.ranks if summary[DDP_MODULES].modules), None)
    modules = of_all[DDP_MODULES].modules if of_all is not None else ()
    bucket_map: list[dict[str, object]] = [
        tables.BUCKET_MAP.row(
            bucket,
            module=module.module,
            parameters=bucket.parameters or None,
            inferred=of_all is not None and of_all[DDP_MODULES].inferred,
        )
        for module in modules
        for bucket in module.buckets
    ]
    reduces = any(len(summary[BUCKET_REDUCTIONS]) for summary in run.ranks)
    matched = [(group, group_times(run, group)) for group in run.collectives] if reduces else []
    times = [row for summary in run.ranks for row in _times(run, summary, matched)]
    outcome = bucket_whatif(run)
    return Buckets(
        bucket_map=bucket_map,
        times=times,
        by_index=_by_index(times),
        whatif=[asdict(cap) for cap in outcome.caps] if isinstance(outcome, BucketWhatIf) else [],
        whatif_unavailable=outcome if isinstance(outcome, Unavailable) else None,
        micro_batches=_micro_batches(run, times),
        picture=bucket_picture(times),
        findings=(*bucket_findings(run, outcome, times), *micro_batch_findings(run), *manual_data_parallel(run)),
    )


def _micro_batches(run: Run, times: list[dict[str, Any]]) -> int | None:
    """Return how many forward passes there are for each backward pass that reduces.

    None where forward passes are not labelled, or their number is no multiple.
    """
    forwards = sum(summary[DDP_PASSES].forwards for summary in run.ranks)
    reducing = len({(row["rank"], row["step"], row["module"], row["turn"]) for row in times})
    return forwards // reducing if reducing and forwards and forwards % reducing == 0 else None


def _times(run: Run, summary: RankSummary, matched: Sequence[TimesOfGroup]) -> list[dict[str, Any]]:
    runs = summary[BUCKET_REDUCTIONS]
    starts_ns = {step.step: step.start_ns for step in summary.steps if step.complete}
    busbw_bps = _bus_bandwidths(run, summary, matched)
    rows = []
    for i, step in enumerate(runs.step.tolist()):
        if step not in starts_ns:
            continue
        offsets = {
            name: int(getattr(runs, name)[i]) - starts_ns[step]
            for name in ("ready_ns", "launch_ns", "start_ns", "end_ns")
        }
        rows.append(
            {
                "rank": summary.rank,
                "step": step,
                "module": summary[DDP_MODULES].modules[runs.module[i]].module,
                "index": int(runs.index[i]),
                "turn": int(runs.backward_pass[i]),
                **offsets,
                "uncovered_ns": int(runs.uncovered_ns[i]),
                "added_ns": int(runs.added_ns[i]),
                "busbw_bps": busbw_bps[i],
            }
        )
    return rows


def _bus_bandwidths(run: Run, summary: RankSummary, matched: Sequence[TimesOfGroup]) -> list[float | None]:
    """Return the bus bandwidth of each of the rank's reductions, bytes/s.

    None unless all ranks of the group were recorded, and in steps that not all ranks completed.
    """
    collectives, runs = summary.collectives, summary[BUCKET_REDUCTIONS]
    result: list[float | None] = [None] * len(runs)
    if not len(collectives) or not len(runs):
        return result
    row = rows_of_reductions(summary, summary[BUCKET_REDUCTIONS])
    for group, times in matched:
        members = len(run.groups[group.group].ranks) or len(group.ranks)
        member = np.flatnonzero(group.ranks == summary.rank)
        if not len(member) or members < 2 or len(group.ranks) < members:
            continue
        transfer_ns = np.zeros(len(collectives), dtype=np.int64)
        transfer_ns[group.row[member[0], times.instance]] = times.transfer_ns
        factor = bus_factor("all_reduce", members)
        for i in np.flatnonzero((row != ABSENT) & (transfer_ns[row] > 0)).tolist():
            result[i] = int(runs.size_bytes[i]) / int(transfer_ns[row[i]]) * 1e9 * factor
    return result


def _by_index(times: list[dict[str, Any]]) -> list[dict[str, object]]:
    each = grouped(((row["module"], row["index"]), row) for row in times if row["index"] != WHOLE)
    result: list[dict[str, object]] = []
    for (module, index), rows in sorted(each.items()):
        uncovered_ns = grouped((row["rank"], row["uncovered_ns"]) for row in rows)
        of_rank_ns = {rank: statistics.fmean(values) for rank, values in uncovered_ns.items()}
        worst = max(of_rank_ns, key=lambda rank: (of_rank_ns[rank], -rank))
        bandwidths = [row["busbw_bps"] for row in rows if row["busbw_bps"] is not None]
        result.append(
            {
                "module": module,
                "index": index,
                "ready_ns": statistics.fmean(row["ready_ns"] for row in rows),
                "queued_ns": statistics.fmean(row["start_ns"] - row["launch_ns"] for row in rows),
                "total_ns": statistics.fmean(row["end_ns"] - row["start_ns"] for row in rows),
                "uncovered_ns": statistics.fmean(row["uncovered_ns"] for row in rows),
                "added_ns": statistics.fmean(row["added_ns"] for row in rows),
                "busbw_bps": statistics.median(bandwidths) if bandwidths else None,
                "worst_rank": worst,
                "worst_uncovered_ns": of_rank_ns[worst],
            }
        )
    return result


@dataclass(frozen=True, kw_only=True)
class BucketBar:
    """One reduction, in nanoseconds from the step's start; and how much of it is exposed."""

    module: str
    index: int
    ready_ns: int
    start_ns: int
    end_ns: int
    uncovered_ns: int


@dataclass(frozen=True, kw_only=True)
class BucketPicture:
    """The reductions of one step.

    Attributes:
        last_gradient_ns: when the last gradient came, from the step's start.
        bars: in order of start.
    """

    rank: int
    step: int
    last_gradient_ns: int
    bars: tuple[BucketBar, ...]


def bucket_picture(times: Sequence[dict[str, Any]]) -> BucketPicture | None:
    """Return the step whose exposed time is closest to the median over the steps of its rank.

    `times`: rows of the table BUCKETS.
    """
    added_ns: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in times:
        if row["index"] != WHOLE:
            added_ns[row["rank"]][row["step"]] += row["added_ns"]
    if not added_ns:
        return None
    medians_ns = {rank: statistics.median(steps.values()) for rank, steps in added_ns.items()}
    rank = max(medians_ns, key=lambda each: (medians_ns[each], -each))
    step = min(added_ns[rank], key=lambda each: (abs(added_ns[rank][each] - medians_ns[rank]), each))
    rows = sorted(
        (row for row in times if (row["rank"], row["step"]) == (rank, step) and row["index"] != WHOLE),
        key=lambda row: (row["start_ns"], row["index"]),
    )
    names = ("module", "index", "ready_ns", "start_ns", "end_ns", "uncovered_ns")
    return BucketPicture(
        rank=rank,
        step=step,
        last_gradient_ns=max(row["ready_ns"] for row in rows),
        bars=tuple(BucketBar(**{name: row[name] for name in names}) for row in rows),
    )


def _modules(recorded: RecordedSteps) -> DdpModules:
    metadata = recorded.trace.header.metadata
    if metadata is not None:
        return DdpModules(modules=tuple(metadata.ddp))
    modules = inferred_modules(recorded.trace, recorded.lanes, recorded.once(gradient_reductions))
    return DdpModules(modules=modules, inferred=bool(modules))


def _passes(recorded: RecordedSteps) -> DdpPasses:
    if not recorded.once(_modules).modules:
        return DdpPasses()
    return ddp_passes(recorded.trace, recorded.lanes, recorded.steps)


def _bucket_reductions(recorded: RecordedSteps) -> BucketReductions:
    modules = recorded.once(_modules).modules
    return bucket_reductions(recorded.trace, recorded.lanes, recorded.once(gradient_reductions), modules)


def _gradient_times(recorded: RecordedSteps) -> GradientTimes:
    runs, modules = recorded.once(_bucket_reductions), recorded.once(_modules).modules
    return gradient_times(recorded.trace, recorded.lanes, runs, modules)


BUCKETS_SECTION: Section[Buckets] = Section(
    name="buckets",
    reads=(
        *(DDP_MODULES, DDP_PASSES, BUCKET_REDUCTIONS, EARLY_REDUCTIONS, GRADIENT_TIMES),
        *(MANUAL_REDUCTIONS, MANUAL_GRADIENT_TIMES),
    ),
    keeps={
        DDP_MODULES: _modules,
        DDP_PASSES: _passes,
        BUCKET_REDUCTIONS: _bucket_reductions,
        EARLY_REDUCTIONS: early_reductions,
        GRADIENT_TIMES: _gradient_times,
        MANUAL_REDUCTIONS: lambda recorded: recorded.once(manual_gradients)[0],
        MANUAL_GRADIENT_TIMES: lambda recorded: recorded.once(manual_gradients)[1],
    },
    analyze=lambda given: buckets(given.run),
    tables=(tables.BUCKET_MAP, tables.BUCKETS, tables.BUCKETS_BY_INDEX, tables.BUCKET_WHATIF),
)
