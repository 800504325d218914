"""Where the time of each rank and step goes: compute, exposed communication, exposed copies, idle.

Where it is not known which kernels communicate, nobody may conclude that all is well: a finding says so. The section
also has what recording cost the steps, as each rank measured it.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from tracekit.explain.step_time import tables
from tracekit.explain.step_time.blocking_launches import blocking_findings
from tracekit.explain.step_time.idle import idle_findings, idle_location_rows, idle_rows
from tracekit.explain.step_time.step_rates import longer_computes
from tracekit.explain.step_time.tables import RECORDING_COST, UNCLASSIFIED_KERNELS
from tracekit.findings.finding import Finding
from tracekit.findings.hosts import no_communication, unclassified_communication
from tracekit.findings.steps import exposed_copies, recording_overhead
from tracekit.findings.thresholds import COPY_SHARE, OVERHEAD_RATIO, UNCLASSIFIED_SHARE
from tracekit.model.events import ABSENT
from tracekit.model.intervals import Intervals
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary, StepParts
from tracekit.model.table import Frame
from tracekit.rank.lanes import Lanes
from tracekit.stats.grouped import summed

_PARTS = ("step_ns", "compute_ns", "comm_ns", "overlapped_comm_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """The parts of all steps.

    Attributes:
        ranks: rows of tables.RANKS, sums over complete steps.
        steps: rows of tables.STEPS.
        idle: rows of tables.IDLE.
        idle_locations: rows of tables.IDLE_LOCATIONS.
    """

    ranks: Frame = Frame(tables.RANKS)
    steps: Frame = Frame(tables.STEPS)
    idle: Frame = Frame(tables.IDLE)
    idle_locations: Frame = Frame(tables.IDLE_LOCATIONS)
    findings: tuple[Finding, ...]


def breakdown(run: Run) -> Breakdown:
    """Return tables over all ranks, and findings when they are idle or it is not known what communicates."""
    ranks = [_rank_row(summary) for summary in run.ranks]
    steps = [
        tables.STEPS.row(step, rank=summary.rank, overlap_ratio=_ratio(step.overlapped_comm_ns, step.comm_ns))
        for summary in run.ranks
        for step in summary.steps
    ]
    return Breakdown(
        ranks=ranks,
        steps=steps,
        idle=idle_rows(run),
        idle_locations=idle_location_rows(run),
        findings=(*_unclassified(run), *_copies(run), *blocking_findings(run), *idle_findings(run)),
    )


def _rank_row(summary: RankSummary) -> dict[str, object]:
    complete = [step for step in summary.steps if step.complete]
    sums = {part: sum(getattr(step, part) for step in complete) for part in _PARTS}
    ratio = _ratio(sums["overlapped_comm_ns"], sums["comm_ns"])
    return {"rank": summary.rank, "steps": len(complete), **sums, "overlap_ratio": ratio}


def blocking_evidence(run: Run) -> dict[str, float]:
    """Return the share of the step in which compute waits for communication; nothing unless all waits are recorded."""
    steps = [step for summary in run.ranks for step in summary.steps if step.complete]
    if any(step.blocking_comm_ns is None for step in steps) or not steps:
        return {}
    blocking_ns, step_ns = sum(step.blocking_comm_ns or 0 for step in steps), sum(step.step_ns for step in steps)
    return {"blocking_share": blocking_ns / max(step_ns, 1)}


def _ratio(overlapped_ns: int, comm_ns: int) -> float | None:
    return overlapped_ns / comm_ns if comm_ns else None


def _copies(run: Run) -> list[Finding]:
    steps = [step for summary in run.ranks for step in summary.steps if step.complete]
    step_ns, copy_ns = sum(step.step_ns for step in steps), sum(step.exposed_copy_ns for step in steps)
    if not step_ns:
        return []
    share = copy_ns / step_ns
    return [
        exposed_copies(
            cause="copy",
            time_ns=copy_ns // len(steps),
            evidence={"copy_share": share},
            conditions=[COPY_SHARE.reached_by(share)],
        )
    ]


def _unclassified(run: Run) -> list[Finding]:
    """Return a finding that asks for a rule where kernels that look like communication take a share of the step.

    And where a job of several ranks on GPUs shows no communication at all: that, and which of them compute longer.
    """
    steps = [step for summary in run.ranks for step in summary.steps if step.complete]
    step_ns, comm_ns = sum(step.step_ns for step in steps), sum(step.comm_ns for step in steps)
    if not step_ns:
        return []
    kernels = [kernel for summary in run.ranks for kernel in summary[UNCLASSIFIED_KERNELS]]
    total_ns = sum(kernel.total_ns for kernel in kernels)
    if total_ns:
        by_rule = summed(((kernel.pattern, kernel.kind), kernel.total_ns) for kernel in kernels)
        (pattern, kind), most_ns = by_rule.most_common(1)[0]
        found = unclassified_communication(
            cause="unclassified",
            time_ns=total_ns // len(steps),
            evidence={
                "unclassified_share": total_ns / step_ns,
                "pattern": pattern,
                "kind": kind,
                "total_ns": most_ns,
                "others": len(by_rule) - 1,
            },
            conditions=[UNCLASSIFIED_SHARE.reached_by(total_ns / step_ns)],
        )
        if found.holds:
            return [found]
    measured = sum(summary.is_measured for summary in run.ranks)
    if run.device == "gpu" and max(run.world_size or 1, measured) > 1 and not comm_ns:
        found = no_communication(severity="info", evidence={"ranks": measured, "world_size": run.world_size})
        return [found, *longer_computes(run)]
    return []


def step_parts(lanes: Lanes, blocking: Intervals | None = None) -> list[StepParts]:
    """The parts of every window, in order of time. blocking: when compute waited for communication, if it is recorded.

    Raises AssertionError if the parts and the idle time, which is measured as gaps, do not add up to a window.
    """
    windows = lanes.windows
    time_of = {
        "compute_ns": lanes.compute,
        "comm_ns": lanes.communication,
        "overlapped_comm_ns": lanes.communication & lanes.compute,
        "exposed_comm_ns": lanes.exposed_communication,
        "exposed_copy_ns": lanes.exposed_copy,
        "idle_ns": lanes.idle,
        **({} if blocking is None else {"blocking_comm_ns": blocking}),
    }
    covered = {name: time.covered_ns(windows.start_ns, windows.end_ns).tolist() for name, time in time_of.items()}
    result = []
    for i, data_ns in enumerate(windows.data_ns.tolist()):
        parts = StepParts(
            step=int(windows.step[i]),
            start_ns=int(windows.start_ns[i]),
            complete=bool(windows.complete[i]),
            data_ns=data_ns if data_ns != ABSENT else None,
            step_ns=int(windows.end_ns[i] - windows.start_ns[i]),
            **{name: covered_ns[i] for name, covered_ns in covered.items()},
        )
        total = parts.compute_ns + parts.exposed_comm_ns + parts.exposed_copy_ns + parts.idle_ns
        assert total == parts.step_ns, f"step {parts.step}: the parts sum to {total} ns of {parts.step_ns} ns"
        result.append(parts)
    return result


@dataclass(frozen=True, kw_only=True)
class CaptureOverhead:
    """The cost on `rank`, the one with the largest ratio of cost to mean step.

    Attributes:
        per_step_ns: by which recording can have lengthened a step. On a GPU no more than the device was idle: as long
            as it has work, a slower host costs nothing.
        options: options of torch.profiler that were on.
    """

    rank: int
    per_step_ns: int
    ratio: float
    options: tuple[str, ...]


def capture_overhead(run: Run) -> CaptureOverhead | None:
    """Return the largest cost; None if no rank measured it."""
    costs = [cost for summary in run.ranks if (cost := _cost(summary)) is not None]
    return max(costs, key=lambda cost: cost.ratio, default=None)


def overhead_findings(run: Run) -> list[Finding]:
    cost = capture_overhead(run)
    if cost is None:
        return []
    return [
        recording_overhead(
            cause="recording",
            time_ns=cost.per_step_ns,
            evidence={
                "rank": cost.rank,
                "per_step_ns": cost.per_step_ns,
                "ratio": cost.ratio,
                "options": list(cost.options),
            },
            conditions=[OVERHEAD_RATIO.reached_by(cost.ratio)],
        )
    ]


def _cost(summary: RankSummary) -> CaptureOverhead | None:
    steps = [step for step in summary.steps if step.complete]
    cost = summary[RECORDING_COST]
    if cost is None or not any(step.step_ns for step in steps):
        return None
    idle_ns = sum(step.idle_ns for step in steps) // len(steps)
    per_step_ns = cost.per_step_ns if summary.device == "cpu" else min(cost.per_step_ns, idle_ns)
    return CaptureOverhead(
        rank=summary.rank,
        per_step_ns=per_step_ns,
        ratio=per_step_ns / statistics.mean(step.step_ns for step in steps),
        options=cost.options,
    )
