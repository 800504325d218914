"""Write the page of the run as a whole, "run": findings, steps, the critical path, counters over ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tracekit.explain.diagnosis.critical_path import CriticalPath
from tracekit.findings.finding import Finding
from tracekit.loading.options import StepSelection
from tracekit.model.communication import KINDS, bus_factor
from tracekit.model.events import ABSENT, Float64, Int64
from tracekit.model.intervals import Intervals
from tracekit.render.merged.derived_tracks import CATEGORY, DerivedTrack, group_labels
from tracekit.render.merged.plan import RunPlan
from tracekit.render.slices import Argument, Slices, TraceWriter
from tracekit.report.report import Report


def write_run(writer: TraceWriter[Any], plan: RunPlan, report: Report | None, chosen: StepSelection) -> None:
    """Write the page of the run.

    report: of the same run; without it the page has neither findings nor a critical path.
    chosen: the steps that the pages of ranks show.
    """
    page = writer.add_run_page()
    steps_ns = _steps_ns(plan)
    tracks = [_steps(steps_ns)]
    if report is not None:
        tracks.insert(0, _findings(report.findings, steps_ns, plan.first_ns))
        tracks += _critical_path(report.critical_path, plan.shift_ns)
    for order, track in enumerate(tracks):
        if len(track.slices):
            writer.write_slices(writer.add_track(track.name, parent=page, order=order), track.slices)
    if plan.comparable:  # counters mean nothing if times of different ranks cannot be compared
        _write_counters(writer, page, len(tracks), [_ranks_waiting(plan, chosen)])
        # There may be hundreds of groups. A viewer shows them when their track is opened.
        groups = writer.add_track("bus bandwidth", parent=page, order=len(tracks) + 1)
        _write_counters(writer, groups, 0, _bus_bandwidths(plan))


def _steps_ns(plan: RunPlan) -> dict[int, tuple[int, int]]:
    """Return start and end of each step over all ranks.

    A step starts when the first rank begins it. It ends when the last rank ends it, or when the first rank begins the
    next one: ranks that need not wait for each other are in different steps at a time.
    """
    bounds: defaultdict[int, list[int]] = defaultdict(list)
    for rank in plan.ranks:
        edges_ns = [(step.start_ns, step.start_ns + step.step_ns) for step in rank.summary.steps]
        on_run = rank.clock.to_run(np.array(edges_ns, dtype=np.int64).reshape(-1)).reshape(-1, 2)
        for step, bounds_ns in zip(rank.summary.steps, on_run.tolist(), strict=True):
            bounds[step.step] += bounds_ns
    steps = sorted(bounds)
    starts_ns = [min(bounds[step]) for step in steps]
    followed_by = dict(zip(steps, starts_ns[1:], strict=False))
    return {
        step: (start_ns, max(start_ns, min(max(bounds[step]), followed_by.get(step, max(bounds[step])))))
        for step, start_ns in zip(steps, starts_ns, strict=True)
    }


def _steps(steps_ns: dict[int, tuple[int, int]]) -> DerivedTrack:
    start_ns, end_ns = np.array(list(steps_ns.values()), dtype=np.int64).reshape(-1, 2).T
    arguments = [Argument(name="step", values=np.array(list(steps_ns), dtype=np.int64))]
    names = [f"step {step}" for step in steps_ns]
    slices = Slices.named(names, start_ns, end_ns, category=CATEGORY, arguments=arguments)
    return DerivedTrack(name="steps", slices=slices)


def _findings(findings: Sequence[Finding], steps_ns: dict[int, tuple[int, int]], first_ns: int) -> DerivedTrack:
    """Return the findings as slices that are as long as the finding's step, or as all steps.

    So their texts can be read, and none hides another. Findings of one step are shown below those of all steps.
    """
    bounds_ns = [bound_ns for step_ns in steps_ns.values() for bound_ns in step_ns] or [first_ns]
    whole_ns = (min(bounds_ns), max(bounds_ns))
    spans_ns = [whole_ns if finding.step is None else steps_ns.get(finding.step, whole_ns) for finding in findings]
    start_ns, end_ns = np.array(spans_ns, dtype=np.int64).reshape(-1, 2).T
    arguments = []
    for name in ("rank", "step", "time_ns", "saving_ns", "saving_error_ns"):
        values = [getattr(finding, name) for finding in findings]
        present = np.array([value is not None for value in values], dtype=np.bool_)
        numbers = np.array([value or 0 for value in values], dtype=np.int64)
        arguments.append(Argument(name=name, values=numbers, present=present))
    texts: dict[str, list[str]] = {
        "id": [finding.id for finding in findings],
        "text": [finding.text for finding in findings],
        "severity": [finding.severity for finding in findings],
        "cause": [finding.cause or "unknown" for finding in findings],
        "certainty": [finding.certainty for finding in findings],
        "action": [finding.action or "nothing" for finding in findings],
    }
    names = [f"{finding.severity}: {finding.text}" for finding in findings]
    slices = Slices.named(names, start_ns, end_ns, category=CATEGORY, arguments=arguments, texts=texts)
    return DerivedTrack(name="findings", slices=slices)


def _critical_path(path: CriticalPath | None, shift_ns: int) -> Iterator[DerivedTrack]:
    if path is None or not path.intervals:
        return
    intervals = path.intervals
    names = [f"rank {s.rank}: {max(s.parts_ns, key=s.parts_ns.__getitem__)} to {s.name}" for s in intervals]
    arguments = [Argument(name="rank", values=np.array([s.rank for s in intervals], dtype=np.int64))]
    for kind in sorted({kind for s in intervals for kind in s.parts_ns}):
        values = np.array([s.parts_ns.get(kind, ABSENT) for s in intervals], dtype=np.int64)
        arguments.append(Argument(name=f"{kind}_ns", values=values, present=values != ABSENT))
    start_ns, end_ns = np.array([(s.start_ns, s.end_ns) for s in intervals], dtype=np.int64).T + shift_ns
    texts = {"before": [s.name for s in intervals]}
    slices = Slices.named(names, start_ns, end_ns, category=CATEGORY, arguments=arguments, texts=texts)
    yield DerivedTrack(name="critical path", slices=slices)


_Counter = tuple[str, str, Int64, Float64]  # name, unit, times on the run's clock, values


def _write_counters(writer: TraceWriter[Any], parent: object, first: int, counters: Iterable[_Counter]) -> None:
    """Write the counters that have values under `parent`, as its tracks number `first` and on."""
    for order, (name, unit, time_ns, values) in enumerate(counters, start=first):
        if len(time_ns):
            writer.write_counter(writer.add_counter(name, unit=unit, parent=parent, order=order), time_ns, values)


def _ranks_waiting(plan: RunPlan, chosen: StepSelection) -> _Counter:
    """Return the number of ranks that wait for another rank, over time."""
    edges = [np.empty(0, dtype=np.int64)]
    change = [np.empty(0, dtype=np.int64)]
    for rank in plan.ranks:
        if rank.waits is None:
            continue
        waits = rank.waits.rows(chosen.mask(rank.waits.step))
        waiting = Intervals.union_of(waits.start_ns, waits.end_ns)
        for times_ns, by in ((waiting.start_ns, 1), (waiting.end_ns, -1)):
            edges.append(times_ns)
            change.append(np.full(len(times_ns), by, dtype=np.int64))
    return ("ranks waiting", "ranks", *_levels(np.concatenate(edges), np.concatenate(change).astype(np.float64)))


def _bus_bandwidths(plan: RunPlan) -> Iterator[_Counter]:
    """Yield the bus bandwidth of each group while its collectives transfer, from the last rank's arrival to the end."""
    instances = plan.instances
    labels = group_labels(plan.groups)
    known = (instances.group != ABSENT) & (instances.size_bytes > 0) & (instances.end_ns > instances.begin_ns)
    for group in np.unique(instances.group[known]).tolist():
        rows = np.flatnonzero(known & (instances.group == group))
        members = len(plan.groups[group].ranks) or int(instances.members[rows].max())
        factor = np.array([bus_factor(kind, members) for kind in KINDS])[instances.kind[rows]]
        took_ns = instances.end_ns[rows] - instances.begin_ns[rows]
        gigabytes_per_s = instances.size_bytes[rows] / took_ns * factor
        times = np.concatenate((instances.begin_ns[rows], instances.end_ns[rows]))
        levels = _levels(times, np.concatenate((gigabytes_per_s, -gigabytes_per_s)))
        yield (f"busbw · {labels[group]}", "GB/s", *levels)


def _levels(times_ns: Int64, change: Float64) -> tuple[Int64, Float64]:
    """Return the times at which a sum of changes changes, and its value from each of them on."""
    order = np.argsort(times_ns, kind="stable")
    times_ns, level = times_ns[order], np.cumsum(change[order])
    last = np.append(times_ns[1:] != times_ns[:-1], True)[: len(times_ns)]
    level[np.abs(level) < 1e-9] = 0.0  # sums of floats that are 0 but for rounding
    return times_ns[last], level[last]
