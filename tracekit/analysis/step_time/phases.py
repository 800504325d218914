"""What a step's time is spent on: loading data, forward, backward, optimizer, or anything else; exact in integers.

Per rank (in a worker): lanes and the timeline of phases to `PhaseSums`. Over ranks: `step_phases(run)` to tables and a
finding about data loading. The phases partition the step, and within each its compute, exposed communication, exposed
copies and idle time do. On a GPU rank a phase begins on the device when the compute launched before it has ended, as a
step does; communication launched before it that the phase's first compute seems to wait for still belongs to the
phase before.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracekit import schema
from tracekit.analysis.events.phases import PhaseTimeline, data_loading
from tracekit.analysis.timeline.lanes import CompleteSteps, Lanes, complete_steps
from tracekit.analysis.timeline.steps import device_starts
from tracekit.model.events import Bool, DecodedTrace, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.run import Finding, Run
from tracekit.model.spans import BACKWARD_SPAN, RECOMPUTE_SPAN, optimizer_span, parse_optimizer_span
from tracekit.model.summary import PhasePart, PhaseSums, RankSummary, StepParts

STEP_PHASES = ("data", "forward", "backward", "optimizer", "other")
_DATA, _FORWARD, _BACKWARD, _OPTIMIZER, _OTHER = range(5)
# What `PhaseTimeline.at` says, with -1 as the last. Once its step has ended, what follows is not the optimizer's.
_OF_LAUNCH = np.array([_FORWARD, _BACKWARD, _OTHER, _OTHER], dtype=np.int64)
_NOTABLE = 0.05  # of a step

__all__ = ["STEP_PHASES", "StepPhases", "merge_phase_sums", "phase_sums", "step_phases"]


@dataclass(frozen=True, kw_only=True)
class StepPhases:
    """`parts`: columns of schema.PHASES, sums over the complete steps of each rank. `by_phase`: columns of
    schema.PHASES_BY_PHASE, means over ranks. `ranks`: columns of schema.PHASE_FACTS.
    """

    parts: schema.Frame = schema.Frame(schema.PHASES)
    by_phase: schema.Frame = schema.Frame(schema.PHASES_BY_PHASE)
    ranks: schema.Frame = schema.Frame(schema.PHASE_FACTS)
    findings: tuple[Finding, ...]


def phase_sums(trace: DecodedTrace, lanes: Lanes, launches: PhaseTimeline, steps: Sequence[StepParts]) -> PhaseSums:
    """The parts of each phase over the complete steps among `steps`, and what happened in them."""
    complete = complete_steps(lanes, steps)
    parts = _parts(_phases_in_time(trace.events, lanes, launches), lanes, complete.time)
    if trace.header.metadata is None:  # the spans are the capture's, and that there are none says nothing
        return PhaseSums(parts=parts)
    return replace(_happened(trace.events, lanes, complete), parts=parts, precision=trace.header.metadata.precision)


def _parts(time: Sequence[Intervals], lanes: Lanes, inside: Intervals) -> tuple[PhasePart, ...]:
    parts = []
    for name, everywhere in zip(STEP_PHASES, time, strict=True):
        own = everywhere & inside
        part = PhasePart(
            phase=name,
            total_ns=own.len_ns,
            compute_ns=(own & lanes.compute).len_ns,
            exposed_comm_ns=(own & lanes.exposed_communication).len_ns,
            exposed_copy_ns=(own & lanes.exposed_copy).len_ns,
            idle_ns=(own - lanes.busy).len_ns,
        )
        total = part.compute_ns + part.exposed_comm_ns + part.exposed_copy_ns + part.idle_ns
        assert total == part.total_ns, f"{name}: the parts sum to {total} ns of {part.total_ns} ns"
        parts.append(part)
    total = sum(part.total_ns for part in parts)
    assert total == inside.len_ns, f"the phases sum to {total} ns of {inside.len_ns} ns"
    return tuple(parts)


def _phases_in_time(events: EventTable, lanes: Lanes, launches: PhaseTimeline) -> list[Intervals]:
    """When each of `STEP_PHASES` was, without gaps or overlap from the first window to the end of the last."""
    windows = lanes.windows
    data = data_loading(events, windows.thread)
    optimizer = Intervals.of_events(events, _of_optimizer(events, lanes.threads))
    edges = (launches.change_ns, data.start_ns, data.end_ns, optimizer.start_ns, optimizer.end_ns)
    change_ns = np.unique(np.concatenate((*edges, windows.host_start_ns)))
    phase = _OF_LAUNCH[launches.at(change_ns)]
    phase[optimizer.covers(change_ns)] = _OPTIMIZER
    phase[data.covers(change_ns)] = _DATA
    if lanes.device == "gpu":
        change_ns = _on_device(events, lanes, change_ns)
    first_ns, last_ns = int(windows.start_ns[0]), int(windows.end_ns.max())
    start_ns = np.clip(np.concatenate(([first_ns], change_ns)), first_ns, last_ns)
    end_ns = np.append(start_ns[1:], last_ns)
    phase = np.concatenate(([_OTHER], phase))
    return [Intervals.union_of(start_ns[phase == i], end_ns[phase == i]) for i in range(len(STEP_PHASES))]


def _of_optimizer(events: EventTable, threads: Int64) -> Bool:
    named = events.named(
        lambda name: (
            name.startswith(("Optimizer.step#", "Optimizer.zero_grad#")) or parse_optimizer_span(name) is not None
        )
    )
    return named & events.on_tracks(threads) & ~events.in_category("gpu_user_annotation")


def _on_device(events: EventTable, lanes: Lanes, host_ns: Int64) -> Int64:
    """When the device comes to what the host began at each of the times `host_ns` (ascending), ascending."""
    device, found = lanes.device_events, lanes.communication_events
    computes = device.is_kernel & ~device.among(found.row)
    rows, launch_ns = device.row[computes], device.launch_ns[computes]
    begin_ns = device_starts(events, host_ns, device, rows)
    # Communication that is still running keeps the phase before it going until the next compute begins.
    order = np.argsort(launch_ns, kind="stable")
    starts_ns = np.append(events.start_ns[rows][order], np.iinfo(np.int64).max)
    next_compute_ns = np.minimum.accumulate(starts_ns[::-1])[::-1]
    next_compute_ns = next_compute_ns[np.searchsorted(launch_ns[order], host_ns, side="left")]
    order = np.argsort(found.launch_ns, kind="stable")
    reach_ns = np.concatenate(([0], np.maximum.accumulate(found.end_ns[order])))
    communicating_ns = reach_ns[np.searchsorted(found.launch_ns[order], host_ns, side="left")]
    return np.maximum.accumulate(np.maximum(begin_ns, np.minimum(communicating_ns, next_compute_ns)))


def _happened(events: EventTable, lanes: Lanes, complete: CompleteSteps) -> PhaseSums:
    """What the capture's spans show of the complete steps."""
    windows = lanes.windows

    def rows(name: str) -> Int64:
        found = events.each_once(events.named(name.__eq__) & ~events.in_category("gpu_user_annotation"))
        window = windows.index_of(events.start_ns[found])
        return found[(window >= 0) & complete.windows[np.maximum(window, 0)]]

    passes, recomputed = rows(BACKWARD_SPAN), rows(RECOMPUTE_SPAN)
    scaled, fused = rows(optimizer_span("scaled_step")), rows(optimizer_span("fused_scaled_step"))
    recompute = _recompute(events, lanes, recomputed) & complete.time
    return PhaseSums(
        backward_passes=len(passes) if len(passes) or not _ran_backward(events) else None,
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
    return Intervals.union_of(_on_device(events, lanes, spans.start_ns), _on_device(events, lanes, spans.end_ns))


def _ran_backward(events: EventTable) -> bool:
    return bool(events.named(lambda name: name.startswith("autograd::engine::evaluate_function")).any())


def _without_step(events: EventTable, scaled: Int64) -> int:
    """How many of these steps of a gradient scaler did not step their optimizer, as a gradient was infinite."""
    steps = np.flatnonzero(events.named(lambda name: name.startswith("Optimizer.step#")))
    skipped = 0
    for row in scaled.tolist():
        within = (events.track[steps] == events.track[row]) & (events.start_ns[steps] >= events.start_ns[row])
        skipped += not (within & (events.start_ns[steps] < events.end_ns[row])).any()
    return skipped


def merge_phase_sums(windows: Sequence[PhaseSums]) -> PhaseSums:
    """The sums over all windows of one rank; what one of them does not know, nobody knows."""

    def total(name: str) -> int | None:
        values = [getattr(window, name) for window in windows]
        return None if None in values else sum(values)

    fields = ("total_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
    parts: dict[str, Counter[str]] = {phase: Counter() for phase in STEP_PHASES}
    for window in windows:
        for part in window.parts:
            parts[part.phase].update({field: getattr(part, field) for field in fields})
    return PhaseSums(
        parts=tuple(PhasePart(phase=phase, **{f: sums[f] for f in fields}) for phase, sums in parts.items()),
        backward_passes=total("backward_passes"),
        recompute_count=total("recompute_count"),
        recompute_ns=total("recompute_ns"),
        recompute_compute_ns=total("recompute_compute_ns"),
        scaled_steps=total("scaled_steps"),
        skipped_steps=total("skipped_steps"),
        precision=next((window.precision for window in reversed(windows) if window.precision is not None), None),
    )


def step_phases(run: Run) -> StepPhases:
    """Tables over all ranks, and a finding when steps wait for their data."""
    parts = [
        {
            "rank": summary.rank,
            "phase": part.phase,
            "total_ns": part.total_ns,
            "compute_ns": part.compute_ns,
            "exposed_comm_ns": part.exposed_comm_ns,
            "exposed_copy_ns": part.exposed_copy_ns,
            "idle_ns": part.idle_ns,
        }
        for summary in run.ranks
        for part in summary.phases.parts
    ]
    return StepPhases(
        parts=parts,
        by_phase=_by_phase(run),
        ranks=[_facts(summary) for summary in run.ranks],
        findings=tuple(_data_loading(run)),
    )


def _facts(summary: RankSummary) -> dict[str, object]:
    sums, precision = summary.phases, summary.phases.precision
    steps = _complete_steps(summary)
    return {
        "rank": summary.rank,
        "steps": steps,
        "backward_passes": sums.backward_passes,
        "micro_steps": sums.backward_passes / steps if steps and sums.backward_passes is not None else None,
        "recompute_count": sums.recompute_count,
        "recompute_ns": sums.recompute_ns,
        "recompute_compute_ns": sums.recompute_compute_ns,
        "scaled_steps": sums.scaled_steps,
        "skipped_steps": sums.skipped_steps,
        "autocast": None if precision is None else list(precision.autocast),
        "parameter_dtypes": None if precision is None else list(precision.parameters),
    }


def _complete_steps(summary: RankSummary) -> int:
    return sum(step.complete for step in summary.steps)


def _by_phase(run: Run) -> list[dict[str, object]]:
    """Rows of the phases that took any time, over the ranks that completed a step."""
    steps = {s.rank: count for s in run.ranks if (count := _complete_steps(s))}
    parts = {s.rank: s.phases.parts for s in run.ranks if s.rank in steps}
    step_ns = statistics.fmean(_mean_step_ns(s) for s in run.ranks if s.rank in steps) if steps else 0.0
    rows = []
    for i, phase in enumerate(STEP_PHASES):
        mean_ns = {rank: own[i].total_ns / steps[rank] for rank, own in parts.items()}
        if not any(mean_ns.values()):
            continue
        worst = max(mean_ns, key=lambda rank: (mean_ns[rank], -rank))
        means = {
            field: statistics.fmean(getattr(own[i], field) / steps[rank] for rank, own in parts.items())
            for field in ("total_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
        }
        row: dict[str, object] = {"phase": phase, "ranks": len(parts), "share": means["total_ns"] / step_ns, **means}
        rows.append(row | {"worst_rank": worst, "worst_total_ns": mean_ns[worst]})
    return rows


def _mean_step_ns(summary: RankSummary) -> float:
    return sum(part.total_ns for part in summary.phases.parts) / _complete_steps(summary)


def _data_loading(run: Run) -> list[Finding]:
    """Time in which a rank does nothing but load data."""
    ranks = [summary for summary in run.ranks if _complete_steps(summary)]
    step_ns = {s.rank: _mean_step_ns(s) for s in ranks}
    data_ns = {s.rank: s.phases.parts[_DATA].total_ns / _complete_steps(s) for s in ranks}
    worst = max(data_ns, key=lambda rank: (data_ns[rank] / step_ns[rank], -rank), default=None)
    if worst is None or data_ns[worst] < _NOTABLE * step_ns[worst]:
        return []
    mean_ns = statistics.fmean(data_ns.values())
    share = sum(data_ns.values()) / sum(step_ns.values())
    text = f"steps wait for their data: loading takes {share:.0%} of the step ({mean_ns / 1e6:.1f} ms)"
    if len(ranks) > 1:
        text += f", most on rank {worst} ({data_ns[worst] / 1e6:.1f} ms)"
    text += "; load ahead in workers (DataLoader's num_workers, prefetch_factor)"
    saving_ns = max(step_ns.values()) - max(step_ns[rank] - data_ns[rank] for rank in step_ns)
    evidence = {"data_share": share, "data_ns": int(mean_ns), "worst_data_ns": int(data_ns[worst])}
    return [Finding(severity="warning", rank=worst, text=text, saving_ns=int(saving_ns), evidence=evidence)]
