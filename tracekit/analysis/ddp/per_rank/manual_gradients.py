"""Gradients that one rank's training loop averages by hand, in groups whose use for gradients the capture recorded.

A gradient is there when the autograd engine accumulates it. A backward pass lasts until the next one of its step
begins, so that reductions after it belong to it.

Where the rank waits for a reduction, what follows is late by that wait. Gradients have the times that they would have
had without the waits since the pass began. What is left between the last gradient and the end of the last reduction is
what the loop does with each reduced gradient, such as dividing it: DDP does that as it copies a bucket back.

    measured           |--backward--|== all-reduce ==|div|== all-reduce ==|div|
    without the waits  |--backward--||div||div|
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tracekit.analysis.ddp.per_rank.bucket_reductions import measured_columns, reduced_elements
from tracekit.analysis.ddp.tables import GradientTimes, ManualReductions
from tracekit.analysis.events.groups import key_of_recorded_group
from tracekit.analysis.events.phases import PHASES
from tracekit.analysis.events.shapes import recorded_shapes
from tracekit.analysis.timeline.lanes import Lanes
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.analysis.timeline.steps import device_starts
from tracekit.model.communication import KINDS, CommunicationEvents
from tracekit.model.events import ABSENT, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.metadata import CaptureMetadata
from tracekit.model.spans import BACKWARD_SPAN

__all__ = ["manual_gradients"]

_REDUCES = tuple(KINDS.index(kind) for kind in ("all_reduce", "reduce", "reduce_scatter"))
_SCALAR_BYTES = 8  # scalars, such as a loss
_WITHOUT_GRADIENTS = tuple(PHASES.index(phase) for phase in ("forward", "evaluation", "checkpoint"))
_ACCUMULATES = "torch::autograd::AccumulateGrad"


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
    reductions = ManualReductions(
        module=np.zeros(len(which), dtype=np.int32),
        index=index,
        backward_pass=backward_pass,
        in_backward=Intervals.of_events(events, backward).covers(columns["launch_ns"]),
        parameters=np.full(len(which), next((use.parameters for use in uses if use.parameters), 0), dtype=np.int32),
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
        np.isin(communication.kind, _REDUCES)
        & np.isin(communication.group, [index for index, key in enumerate(communication.groups) if key in keys])
        & ((communication.size_bytes == ABSENT) | (communication.size_bytes > _SCALAR_BYTES))
        & ~np.isin(recorded.phases.at(communication.launch_ns), _WITHOUT_GRADIENTS)
        & (lanes.window >= 0)
    )
    return which[np.argsort(communication.launch_ns[which], kind="stable")]


def _is_summed(communication: CommunicationEvents, reduced: Int64, elements: int) -> bool:
    """Return whether all-reduces of one group sum so many elements."""
    are_alike = len({*zip(communication.kind[reduced], communication.group[reduced], strict=True)}) == 1
    known = are_alike and communication.kind[reduced[0]] == KINDS.index("all_reduce")
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
    ready_ns, none = ends_ns[:-1], np.zeros(len(elements), dtype=np.int64)
    back_ns = max(int(ends_ns[-1] - ready_ns.max()), 0) * elements / elements.sum()
    return GradientTimes(
        module=none.astype(np.int32),
        step=none + step,
        backward_pass=np.full(len(elements), number, dtype=np.int32),
        place=np.arange(len(elements), dtype=np.int32),
        ready_ns=ready_ns,
        back_ns=back_ns.astype(np.int64),
        elements=elements,
        compute_ns=ready_ns - ready_ns.min(),
    )
