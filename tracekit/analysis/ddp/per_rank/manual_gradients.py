"""Gradients that one rank's training loop averages by hand, in groups whose use for gradients the capture recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracekit.analysis.ddp.parts import GradientSum
from tracekit.analysis.events.groups import key_of_recorded_group
from tracekit.analysis.events.phases import PHASES, PhaseTimeline
from tracekit.analysis.timeline.lanes import Lanes
from tracekit.model.communication import KINDS, GroupKey
from tracekit.model.events import ABSENT, Bool, DecodedTrace
from tracekit.model.intervals import Intervals
from tracekit.model.metadata import CaptureMetadata, CommunicationUse
from tracekit.model.spans import BACKWARD_SPAN
from tracekit.model.summary import StepParts

__all__ = ["gradient_sums", "reductions_by_hand"]

_REDUCES = tuple(KINDS.index(kind) for kind in ("all_reduce", "reduce", "reduce_scatter"))
_SCALAR_BYTES = 8  # scalars, such as a loss

_WITHOUT_GRADIENTS = tuple(PHASES.index(phase) for phase in ("forward", "evaluation", "checkpoint"))


def gradient_sums(
    trace: DecodedTrace, lanes: Lanes, phases: PhaseTimeline, steps: Sequence[StepParts]
) -> list[GradientSum]:
    """Return one row for each complete step of a job that reduces its gradients by hand."""
    metadata, communication = trace.header.metadata, lanes.communication_events
    if metadata is None or "manual_dp" not in metadata.strategies:
        return []
    uses = _uses(metadata)
    reduces = reductions_by_hand(trace, lanes, phases)
    running = Intervals.of_events(trace.events, np.flatnonzero(trace.events.named(BACKWARD_SPAN.__eq__)))
    numbers = lanes.windows.step.tolist()
    window_of_step = dict(zip(reversed(numbers), reversed(range(len(numbers))), strict=True))  # the first of several
    reductions = np.flatnonzero(reduces)
    reductions = reductions[np.argsort(lanes.window[reductions], kind="stable")]
    rows = []
    for step in steps:
        window = window_of_step[step.step]
        first, stop = np.searchsorted(lanes.window[reductions], (window, window + 1))
        in_step = reductions[first:stop]
        if not step.complete or not len(in_step):
            continue
        start_ns, end_ns = step.start_ns, step.start_ns + step.step_ns
        time = Intervals.union_of(communication.start_ns[in_step], communication.end_ns[in_step]).clip(start_ns, end_ns)
        counted = in_step[lanes.counted[in_step]]
        exposed_ns = (time - lanes.compute).len_ns
        rows.append(
            GradientSum(
                step=step.step,
                count=len(counted),
                in_backward=int(running.covers(communication.launch_ns[counted]).sum()),
                exposed_ns=exposed_ns,
                parameters=next((use.parameters for use in uses if use.parameters), None),
            )
        )
    return rows


def reductions_by_hand(trace: DecodedTrace, lanes: Lanes, phases: PhaseTimeline) -> Bool:
    """Return a mask [n] of the communication events that reduce gradients by hand."""
    metadata, communication = trace.header.metadata, lanes.communication_events
    if metadata is None or "manual_dp" not in metadata.strategies:
        return np.zeros(len(communication), dtype=np.bool_)
    result: Bool = (
        np.isin(communication.kind, _REDUCES)
        & np.isin(communication.group, _indexes(metadata, communication.groups, _uses(metadata)))
        & ((communication.size_bytes == ABSENT) | (communication.size_bytes > _SCALAR_BYTES))
        & ~np.isin(phases.at(communication.launch_ns), _WITHOUT_GRADIENTS)
    )
    return result


def _uses(metadata: CaptureMetadata) -> list[CommunicationUse]:
    return [use for use in metadata.uses if use.purpose == "gradients"]


def _indexes(metadata: CaptureMetadata, groups: Sequence[GroupKey], uses: Sequence[CommunicationUse]) -> list[int]:
    """Return the indexes into `groups` of the groups that these uses name."""
    named = {use.group for use in uses}
    keys = {key_of_recorded_group(group, metadata) for group in metadata.groups if group.id in named}
    return [index for index, key in enumerate(groups) if key in keys]
