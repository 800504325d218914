"""What the steps of a run are spent on: loading data, forward, backward, optimizer, or anything else.

The phases partition the step exactly. Within each phase, compute, exposed communication, exposed copies and idle time
do. The report, its JSON and the merged trace count the same phases.

A CPU rank's phases are those of its host. On a GPU rank, a phase begins on the device when the compute ends that was
launched before it, as a step does. The first compute of a phase may wait for communication that was launched before it.
That communication belongs to the phase before.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracekit.explain.step_time import tables
from tracekit.explain.step_time.tables import PHASE_SUMS, PhasePart, PhaseSums
from tracekit.findings.finding import Finding
from tracekit.findings.hosts import data_loading
from tracekit.findings.thresholds import NOTABLE_SHARE
from tracekit.model.events import EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.run import Run
from tracekit.model.spans import BACKWARD_SPAN, RECOMPUTE_SPAN, optimizer_span
from tracekit.model.summary import RankSummary
from tracekit.model.table import Frame
from tracekit.rank.lanes import CompleteSteps, Lanes, complete_steps
from tracekit.rank.phases import STEP_PHASES, PhaseTimeline, is_autograd_node
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.rank.steps import device_starts

_DATA = STEP_PHASES.index("data")
_FAR_ABOVE = 1.25  # times the mean of the ranks


@dataclass(frozen=True, kw_only=True)
class StepPhases:
    """The phases of all ranks.

    Attributes:
        parts: rows of tables.PHASES, sums over the complete steps of each rank.
        by_phase: rows of tables.PHASES_BY_PHASE, means over ranks.
        ranks: rows of tables.PHASE_FACTS.
    """

    parts: Frame = Frame(tables.PHASES)
    by_phase: Frame = Frame(tables.PHASES_BY_PHASE)
    ranks: Frame = Frame(tables.PHASE_FACTS)
    findings: tuple[Finding, ...]


def step_phases(run: Run) -> StepPhases:
    """Return tables over all ranks, and a finding when steps wait for their data."""
    parts = [tables.PHASES.row(part, rank=summary.rank) for summary in run.ranks for part in summary[PHASE_SUMS].parts]
    return StepPhases(
        parts=parts,
        by_phase=_by_phase(run),
        ranks=[_facts(summary) for summary in run.ranks],
        findings=tuple(_data_loading(run)),
    )


def _facts(summary: RankSummary) -> dict[str, object]:
    sums, precision = summary[PHASE_SUMS], summary[PHASE_SUMS].precision
    steps = _complete_steps(summary)
    return tables.PHASE_FACTS.row(
        sums,
        rank=summary.rank,
        steps=steps,
        micro_steps=sums.backward_passes / steps if steps and sums.backward_passes is not None else None,
        autocast=None if precision is None else precision.autocast,
        parameter_dtypes=None if precision is None else precision.parameters,
    )


def _complete_steps(summary: RankSummary) -> int:
    return sum(step.complete for step in summary.steps)


def _by_phase(run: Run) -> list[dict[str, object]]:
    """Rows of the phases that took any time, over the ranks that completed a step."""
    steps = {s.rank: count for s in run.ranks if (count := _complete_steps(s))}
    parts = {s.rank: s[PHASE_SUMS].parts for s in run.ranks if s.rank in steps}
    step_ns = statistics.fmean(_mean_step_ns(s) for s in run.ranks if s.rank in steps) if steps else 0.0
    rows = []
    for i, phase in enumerate(STEP_PHASES):
        mean_ns = {rank: of_rank[i].total_ns / steps[rank] for rank, of_rank in parts.items()}
        if not any(mean_ns.values()):
            continue
        worst = max(mean_ns, key=lambda rank: (mean_ns[rank], -rank))
        means = {
            field: statistics.fmean(getattr(of_rank[i], field) / steps[rank] for rank, of_rank in parts.items())
            for field in tables.PHASE_PARTS
        }
        row: dict[str, object] = {"phase": phase, "ranks": len(parts), "share": means["total_ns"] / step_ns, **means}
        rows.append(row | {"worst_rank": worst, "worst_total_ns": mean_ns[worst]})
    return rows


def _mean_step_ns(summary: RankSummary) -> float:
    return sum(part.total_ns for part in summary[PHASE_SUMS].parts) / _complete_steps(summary)


def _mean_exposed_ns(summary: RankSummary) -> float:
    return sum(step.exposed_comm_ns for step in summary.steps if step.complete) / _complete_steps(summary)


def _data_loading(run: Run) -> list[Finding]:
    """Find time in which a rank does nothing but load data."""
    ranks = [summary for summary in run.ranks if _complete_steps(summary)]
    step_ns = {s.rank: _mean_step_ns(s) for s in ranks}
    data_ns = {s.rank: s[PHASE_SUMS].parts[_DATA].total_ns / _complete_steps(s) for s in ranks}
    worst = max(data_ns, key=lambda rank: (data_ns[rank] / step_ns[rank], -rank), default=None)
    if worst is None or data_ns[worst] <= 0:
        return []
    mean_ns = statistics.fmean(data_ns.values())
    share = sum(data_ns.values()) / sum(step_ns.values())
    worst_share = data_ns[worst] / step_ns[worst]
    # The others wait in communication for the rank that loads longest. What they do then is not their own time.
    own_ns = {s.rank: step_ns[s.rank] - _mean_exposed_ns(s) for s in ranks}
    saving_ns = max(own_ns.values()) - max(own_ns[rank] - data_ns[rank] for rank in own_ns)
    evidence = {
        "data_share": share,
        "data_ns": int(mean_ns),
        "worst_data_ns": int(data_ns[worst]),
        "worst_share": worst_share if worst_share > _FAR_ABOVE * share else None,
    }
    return [
        data_loading(
            rank=worst,
            cause="data",
            time_ns=round(mean_ns),
            saving_ns=int(saving_ns),
            evidence=evidence,
            conditions=[NOTABLE_SHARE.reached_by(worst_share)],
            remedy="data",
        )
    ]


def phase_sums(recorded: RecordedSteps) -> PhaseSums:
    """Return the parts of each phase over the complete steps, and what happened in these steps."""
    trace, lanes = recorded.trace, recorded.lanes
    complete = complete_steps(lanes, recorded.steps)
    parts = _parts(recorded.once(recorded_phase_times), lanes, complete.time)
    if trace.header.metadata is None:  # without the capture, missing spans show nothing
        return PhaseSums(parts=parts)
    return replace(
        _recorded_facts(trace.events, lanes, complete), parts=parts, precision=trace.header.metadata.precision
    )


def _parts(times: Sequence[Intervals], lanes: Lanes, inside: Intervals) -> tuple[PhasePart, ...]:
    time_of = {
        "compute_ns": lanes.compute,
        "exposed_comm_ns": lanes.exposed_communication,
        "exposed_copy_ns": lanes.exposed_copy,
        "idle_ns": lanes.idle,
    }
    parts = []
    for name, everywhere in zip(STEP_PHASES, times, strict=True):
        time = everywhere & inside
        covered = {part: int(lane.covered_ns(time.start_ns, time.end_ns).sum()) for part, lane in time_of.items()}
        total = sum(covered.values())
        assert total == time.len_ns, f"{name}: the parts sum to {total} ns of {time.len_ns} ns"
        parts.append(PhasePart(phase=name, total_ns=time.len_ns, **covered))
    total = sum(part.total_ns for part in parts)
    assert total == inside.len_ns, f"the phases sum to {total} ns of {inside.len_ns} ns"
    return tuple(parts)


def _recorded_facts(events: EventTable, lanes: Lanes, complete: CompleteSteps) -> PhaseSums:
    """Return what the capture's spans show of the complete steps."""
    windows = lanes.windows

    def rows(name: str) -> Int64:
        named = events.each_once(events.named(name.__eq__) & ~events.in_category("gpu_user_annotation"))
        window = windows.index_of(events.start_ns[named])
        return named[(window >= 0) & complete.windows[np.maximum(window, 0)]]

    passes, recomputed = rows(BACKWARD_SPAN), rows(RECOMPUTE_SPAN)
    scaled, fused = rows(optimizer_span("scaled_step")), rows(optimizer_span("fused_scaled_step"))
    recompute = _recompute(events, lanes, recomputed) & complete.time
    return PhaseSums(
        backward_passes=len(passes) if len(passes) or not events.named(is_autograd_node).any() else None,
        recompute_count=len(recomputed),
        recompute_ns=recompute.len_ns,
        recompute_compute_ns=(recompute & lanes.compute).len_ns,
        scaled_steps=len(scaled) + len(fused),
        skipped_steps=None if len(fused) else _without_step(events, scaled),
    )


def _recompute(events: EventTable, lanes: Lanes, rows: Int64) -> Intervals:
    spans = Intervals.of_events(events, rows)
    if lanes.device == "cpu" or not len(spans):
        return spans
    return Intervals.union_of(device_times(events, lanes, spans.start_ns), device_times(events, lanes, spans.end_ns))


def _without_step(events: EventTable, scaled: Int64) -> int:
    """Return how many of these steps of a gradient scaler did not step their optimizer.

    The scaler skips a step whose gradients are infinite.
    """
    steps = np.flatnonzero(events.named(lambda name: name.startswith("Optimizer.step#")))
    skipped = 0
    for row in scaled.tolist():
        within = (events.track[steps] == events.track[row]) & (events.start_ns[steps] >= events.start_ns[row])
        skipped += not (within & (events.start_ns[steps] < events.end_ns[row])).any()
    return skipped


def phase_times(events: EventTable, lanes: Lanes, timeline: PhaseTimeline) -> list[Intervals]:
    """Return when each of `STEP_PHASES` was.

    They have no gaps or overlap from the first window to the end of the last.
    """
    windows = lanes.windows
    change_ns = np.unique(np.concatenate((timeline.change_ns, windows.host_start_ns)))
    phase = timeline.step_phase_at(change_ns)
    if lanes.device == "gpu":
        change_ns = device_times(events, lanes, change_ns)
    first_ns, last_ns = int(windows.start_ns[0]), int(windows.end_ns.max())
    start_ns = np.clip(np.concatenate(([first_ns], change_ns)), first_ns, last_ns)
    end_ns = np.append(start_ns[1:], last_ns)
    phase = np.concatenate(([STEP_PHASES.index("other")], phase))
    return [Intervals.union_of(start_ns[phase == i], end_ns[phase == i]) for i in range(len(STEP_PHASES))]


def recorded_phase_times(recorded: RecordedSteps) -> list[Intervals]:
    """Return when each of `STEP_PHASES` was on a rank."""
    return phase_times(recorded.trace.events, recorded.lanes, recorded.phases)


def device_times(events: EventTable, lanes: Lanes, host_ns: Int64) -> Int64:
    """Return when the device comes to what the host began at each of the ascending times `host_ns`, ascending."""
    device, communication = lanes.device_events, lanes.communication_events
    rows, launch_ns = device.row[lanes.computes], device.launch_ns[lanes.computes]
    begin_ns = device_starts(events, host_ns, device, lanes.computes)
    # While communication is still running, the phase before continues until the next compute begins.
    order = np.argsort(launch_ns, kind="stable")
    starts_ns = np.append(events.start_ns[rows][order], np.iinfo(np.int64).max)
    next_compute_ns = np.minimum.accumulate(starts_ns[::-1])[::-1]
    next_compute_ns = next_compute_ns[np.searchsorted(launch_ns[order], host_ns, side="left")]
    order = np.argsort(communication.launch_ns, kind="stable")
    reach_ns = np.concatenate(([0], np.maximum.accumulate(communication.end_ns[order])))
    communicating_ns = reach_ns[np.searchsorted(communication.launch_ns[order], host_ns, side="left")]
    return np.maximum.accumulate(np.maximum(begin_ns, np.minimum(communicating_ns, next_compute_ns)))
