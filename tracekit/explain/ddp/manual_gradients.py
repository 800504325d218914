"""Gradients that the training loop averages by hand: how long that is exposed, and what DDP would save.

The gradients are those in groups whose use for gradients the capture recorded. A gradient is there when the autograd
engine accumulates it. A backward pass lasts until the next one of its step begins, so that reductions after it belong
to it.

Where the rank waits for a reduction, what follows is late by that wait. Gradients have the times that they would have
had without the waits since the pass began. What is left between the last gradient and the end of the last reduction is
what the loop does with each reduced gradient, such as dividing it: DDP does that as it copies a bucket back.

    measured           |--backward--|== all-reduce ==|div|== all-reduce ==|div|
    without the waits  |--backward--||div||div|

Each backward pass is replayed with DDP's buckets, as those of DDP are with other limits (`bucket_whatif`). What it is
compared with is not replayed but measured. So the error of the saving has what transfers took longer than usual, as on
a busy machine: buckets may or may not escape that.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tracekit.explain.ddp.backward_passes import GroupPasses, elements_of, groups_that_reduce, joined_passes
from tracekit.explain.ddp.bucket_reductions import measured_columns, reduced_elements
from tracekit.explain.ddp.bucket_replay import Parameters, default_buckets
from tracekit.explain.ddp.bucket_whatif import CAPS_MB, CapOutcome, best_limit, outcomes
from tracekit.explain.ddp.tables import MANUAL_GRADIENT_TIMES, MANUAL_REDUCTIONS, GradientTimes, ManualReductions
from tracekit.explain.section import Unavailable
from tracekit.findings.ddp import gradients_by_hand
from tracekit.findings.finding import Finding
from tracekit.findings.thresholds import NOTABLE_SAVING, NOTABLE_SHARE
from tracekit.model.communication import KINDS, CommunicationEvents
from tracekit.model.events import ABSENT, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.metadata import CaptureMetadata
from tracekit.model.run import Run
from tracekit.model.spans import BACKWARD_SPAN
from tracekit.rank.groups import key_of_recorded_group
from tracekit.rank.lanes import Lanes
from tracekit.rank.phases import PHASES
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.rank.shapes import recorded_shapes
from tracekit.rank.steps import device_starts
from tracekit.stats.transfer_fit import TransferFit, fit_transfers
from tracekit.stats.uncertainty import is_worthwhile

_DEFAULT_BYTES = 25 << 20  # the limit of DDP's buckets, but for the first
_NOT_RECORDED = "not all gradients, or not all ranks that reduce together, are recorded"
_NOTHING_SAVED = "a replay with the buckets of DistributedDataParallel saves no more than its error"

_ALL_REDUCE = KINDS.index("all_reduce")  # reductions to one rank are no averages: each keeps its part, or one them all
_SCALAR_BYTES = 8  # scalars, such as a loss
_WITHOUT_GRADIENTS = tuple(PHASES.index(phase) for phase in ("forward", "evaluation", "checkpoint"))
_ACCUMULATES = "torch::autograd::AccumulateGrad"


def manual_data_parallel(run: Run) -> tuple[Finding, ...]:
    """Return one finding about the steps in which gradients were reduced by hand, if it takes a notable time."""
    steps = list(_steps(run))
    if not steps:
        return ()
    reductions = ManualReductions.concatenate([of_step for _, of_step in steps])
    exposed_ns = int(reductions.added_ns.sum())
    share = exposed_ns / max(sum(step_ns for step_ns, _ in steps), 1)
    count = statistics.median(len(np.unique(of_step.launch_ns)) for _, of_step in steps)
    in_backward = int(reductions.in_backward.sum())
    saving, evidence = _saving(manual_whatif(run), run.mean_rank_step_ns())
    found = gradients_by_hand(
        severity="warning" if share >= NOTABLE_SHARE else "info",
        cause="transfer",
        time_ns=exposed_ns // len(steps),
        evidence={
            "all_reduces_per_step": count,
            "parameters": int(reductions.parameters.max()) or None,
            "in_backward": in_backward,
            "after_backward": 2 * in_backward < len(reductions),
            "exposed_ns": exposed_ns // len(steps),
            "exposed_share": share,
            **evidence,
        },
        **saving,
    )
    return (found,)


def _steps(run: Run) -> Iterator[tuple[int, ManualReductions]]:
    """Yield the length of each complete step in which a rank reduces by hand, and these reductions."""
    for summary in run.ranks:
        reductions = summary[MANUAL_REDUCTIONS]
        for step in summary.steps if len(reductions) else ():
            of_step = reductions.rows(reductions.step == step.step)
            if step.complete and len(of_step):
                yield step.step_ns, of_step


def _saving(outcome: CapOutcome | Unavailable, step_ns: float) -> tuple[dict[str, Any], dict[str, object]]:
    """Return the fields of the finding that say what a replay with buckets saves, and its evidence of that."""
    if isinstance(outcome, Unavailable):
        return {}, {"no_replay": outcome.reason}
    if not is_worthwhile(outcome.saving_ns, outcome.error_ns, step_ns):
        return {}, {"buckets": outcome.buckets, "no_replay": _NOTHING_SAVED}
    return (
        {"saving_ns": outcome.saving_ns, "saving_error_ns": outcome.error_ns},
        {"buckets": outcome.buckets, "bucket_cap_mb": None if outcome.present else outcome.bucket_cap_mb},
    )


def manual_whatif(run: Run) -> CapOutcome | Unavailable:
    """Return what DDP would save, with its default buckets unless others save notably more of a step."""
    groups = list(_groups(run))
    if not groups:
        return Unavailable(reason=_NOT_RECORDED)
    fits = [fit_transfers(group.busy_periods) for group in groups]
    now = [[(each.measured_ns, each.ended_ns) for each in group.passes] for group in groups]
    late_ns = max(statistics.median(_late_ns(group, fit)) for group, fit in zip(groups, fits, strict=True))
    caps = outcomes(groups, fits, now, _DEFAULT_BYTES, CAPS_MB, np.inf, late_ns).caps
    default, best = next(cap for cap in caps if cap.present), best_limit(caps, step_ns := run.mean_rank_step_ns())
    return best if best.saving_ns - default.saving_ns > NOTABLE_SAVING * step_ns else default


def _groups(run: Run) -> Iterator[GroupPasses]:
    """Yield the passes of groups by hand, as those of one module whose parameters are in DDP's default buckets."""
    for matched, summaries, reduced in groups_that_reduce(run, MANUAL_REDUCTIONS):
        of_passes = [of_rank.rows(of_rank.backward_pass >= 0) for of_rank in reduced]
        gradients = [summary[MANUAL_GRADIENT_TIMES] for summary in summaries]
        elements = np.array(elements_of(gradients[0], 0) if gradients else (), dtype=np.int64)
        alike = all((times.elements == np.resize(elements, len(times))).all() for times in gradients)
        if not len(elements) or not alike or not all(map(len, (*of_passes, *gradients))):
            continue
        sizes = elements * int(of_passes[0].size_bytes.sum()) // int(gradients[0].elements.sum())
        dtypes = ("",) * len(elements)
        parameters = Parameters(size_bytes=tuple(sizes.tolist()), dtypes=dtypes, buckets=(), rebuilt=True)
        layout = {0: replace(parameters, buckets=default_buckets(parameters))}
        passes = joined_passes(run, matched, of_passes, gradients, layout)
        if not isinstance(passes, Unavailable):
            yield passes


def _late_ns(group: GroupPasses, fit: TransferFit) -> Iterator[float]:
    """Yield by how much the transfers of each pass together took another time than usual."""
    late_ns = fit.late_ns(group.busy_periods) * group.busy_periods.transfers
    for each in group.passes:
        until_ns = group.busy_periods.end_ns - each.observed.origin_ns
        yield abs(float(late_ns[(until_ns > 0) & (until_ns <= each.ended_ns)].sum()))


def manual_gradients(recorded: RecordedSteps) -> tuple[ManualReductions, GradientTimes]:
    """Return the reductions by hand, and the gradients of those backward passes that all-reduces sum whole."""
    metadata, events, lanes = recorded.trace.header.metadata, recorded.trace.events, recorded.lanes
    if metadata is None or "manual_dp" not in metadata.strategies:
        return ManualReductions.empty(), GradientTimes.empty()
    uses = [use for use in metadata.uses if use.purpose == "gradients"]
    which = _reductions(recorded, metadata, {use.group for use in uses})
    columns = measured_columns(recorded.trace, lanes, which)
    backward = np.flatnonzero(events.named(BACKWARD_SPAN.__eq__) & events.on_tracks(lanes.threads))
    gradients, elements = _accumulated(events)
    ready_ns = events.end_ns[gradients]
    if lanes.device == "gpu":
        ready_ns = device_starts(events, ready_ns, lanes.device_events, lanes.computes)
    waited = Intervals.union_of(columns["start_ns"], columns["end_ns"]) - lanes.compute
    index, backward_pass = np.zeros(len(which), dtype=np.int32), np.full(len(which), ABSENT, dtype=np.int32)
    times = [GradientTimes.empty()]
    for step, number, bounds_ns in _passes(lanes, np.sort(events.start_ns[backward])):
        reduced = slice(*np.searchsorted(columns["launch_ns"], bounds_ns))
        came = slice(*np.searchsorted(events.start_ns[gradients], bounds_ns))
        if _is_summed(lanes.communication_events, which[reduced], int(elements[came].sum())):
            index[reduced], backward_pass[reduced] = np.arange(reduced.stop - reduced.start), number
            ends_ns = np.append(ready_ns[came], columns["end_ns"][reduced].max())
            without_ns = ends_ns - waited.covered_ns(np.minimum(bounds_ns[0], ends_ns), ends_ns)
            times.append(_times(step, number, elements[came], without_ns))
    reductions = ManualReductions.of_rows(
        len(which),
        module=0,
        index=index,
        backward_pass=backward_pass,
        in_backward=Intervals.of_events(events, backward).covers(columns["launch_ns"]),
        parameters=next((use.parameters for use in uses if use.parameters), 0),
        **columns,
    )
    return reductions, GradientTimes.concatenate(times)


def _reductions(recorded: RecordedSteps, metadata: CaptureMetadata, ids: set[int]) -> Int64:
    """Return which communication events of steps reduce gradients by hand, in order of launch, int64 [n].

    ids: of the groups that reduce gradients.
    """
    lanes, communication = recorded.lanes, recorded.lanes.communication_events
    keys = {key_of_recorded_group(group, metadata) for group in metadata.groups if group.id in ids}
    which = np.flatnonzero(
        (communication.kind == _ALL_REDUCE)
        & np.isin(communication.group, [index for index, key in enumerate(communication.groups) if key in keys])
        & ((communication.size_bytes == ABSENT) | (communication.size_bytes > _SCALAR_BYTES))
        & ~np.isin(recorded.phases.at(communication.launch_ns), _WITHOUT_GRADIENTS)
        & (lanes.window >= 0)
    )
    return which[np.argsort(communication.launch_ns[which], kind="stable")]


def _is_summed(communication: CommunicationEvents, reduced: Int64, elements: int) -> bool:
    """Return whether all-reduces of one group sum so many elements."""
    are_alike = len({*zip(communication.kind[reduced], communication.group[reduced], strict=True)}) == 1
    known = are_alike and communication.kind[reduced[0]] == _ALL_REDUCE
    return bool(known and reduced_elements(communication, reduced).sum() == elements)


def _accumulated(events: EventTable) -> tuple[Int64, Int64]:
    """Return the rows of the gradients in order of time, and how many elements each has, int64 [g] each."""
    shapes = recorded_shapes(events)
    rows = [row for row in np.flatnonzero(events.named(_ACCUMULATES.__eq__)).tolist() if row in shapes]
    rows.sort(key=lambda row: int(events.start_ns[row]))
    return np.array(rows, dtype=np.int64), np.array([shapes[row].elements for row in rows], dtype=np.int64)


def _passes(lanes: Lanes, begin_ns: Int64) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """Yield the step of each backward pass in a step, its number there, and from when until when it lasts.

    begin_ns: int64 [p], ascending.
    """
    windows = lanes.windows
    begin_ns = begin_ns[windows.index_of(begin_ns) >= 0]
    window = windows.index_of(begin_ns)
    stops_ns = np.sort(np.concatenate((begin_ns, windows.host_start_ns, [windows.host_end_ns])))
    until_ns = stops_ns[np.searchsorted(stops_ns, begin_ns, side="right")]
    number = np.arange(len(window)) - np.searchsorted(window, window)
    bounds_ns = zip(begin_ns.tolist(), until_ns.tolist(), strict=True)
    yield from zip(windows.step[window].tolist(), number.tolist(), bounds_ns, strict=True)


def _times(step: int, number: int, elements: Int64, ends_ns: Int64) -> GradientTimes:
    """Return the gradients of a pass. ends_ns: int64 [g + 1], of the gradients and of what follows them."""
    ready_ns = ends_ns[:-1]
    back_ns = max(int(ends_ns[-1] - ready_ns.max()), 0) * elements / elements.sum()
    return GradientTimes.of_rows(
        len(elements),
        module=0,
        step=step,
        backward_pass=number,
        parameter=np.arange(len(elements)),
        ready_ns=ready_ns,
        back_ns=back_ns.astype(np.int64),
        elements=elements,
        compute_ns=ready_ns - ready_ns.min(),
    )
