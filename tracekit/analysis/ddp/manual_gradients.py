"""Gradients that the training loop averages by hand: how long nothing hides it, and what DDP would save.

Per rank (in a worker): collectives of the groups whose use for gradients the capture noted, to a `GradientSum` a step.
Over ranks: `manual_data_parallel(run)` to findings.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from tracekit.analysis.events.groups import key_of_recorded_group
from tracekit.analysis.events.phases import PHASES, PhaseTimeline
from tracekit.analysis.step_time.savings import saving_of_ns
from tracekit.analysis.timeline.lanes import Lanes
from tracekit.model.communication import KINDS, GroupKey
from tracekit.model.events import ABSENT, DecodedTrace
from tracekit.model.intervals import Intervals
from tracekit.model.metadata import CaptureMetadata, CommunicationUse
from tracekit.model.run import Finding, Run
from tracekit.model.spans import BACKWARD_SPAN
from tracekit.model.summary import GradientSum, StepParts

_REDUCES = tuple(KINDS.index(kind) for kind in ("all_reduce", "reduce", "reduce_scatter"))
_SCALAR_BYTES = 8  # a loss and its like
_NOTABLE = 0.05  # of a step

__all__ = ["gradient_sums", "manual_data_parallel"]


def gradient_sums(
    trace: DecodedTrace, lanes: Lanes, phases: PhaseTimeline, steps: Sequence[StepParts]
) -> list[GradientSum]:
    """A row for each complete step of a job that reduces its gradients by hand."""
    metadata, found = trace.header.metadata, lanes.communication_events
    if metadata is None or "manual_dp" not in metadata.strategies:
        return []
    uses = [use for use in metadata.uses if use.purpose == "gradients"]
    reduces = (
        np.isin(found.kind, _REDUCES)
        & np.isin(found.group, _indexes(metadata, found.groups, uses))
        & ((found.size_bytes == ABSENT) | (found.size_bytes > _SCALAR_BYTES))
        & (phases.at(found.launch_ns) != PHASES.index("forward"))
    )
    running = Intervals.of_events(trace.events, np.flatnonzero(trace.events.named(BACKWARD_SPAN.__eq__)))
    backward = running & lanes.compute
    numbers = lanes.windows.step.tolist()
    window_of_step = dict(zip(reversed(numbers), reversed(range(len(numbers))), strict=True))  # the first of several
    reductions = np.flatnonzero(reduces)
    reductions = reductions[np.argsort(lanes.window[reductions], kind="stable")]
    rows = []
    for step in steps:
        window = window_of_step[step.step]
        first, stop = np.searchsorted(lanes.window[reductions], (window, window + 1))
        own = reductions[first:stop]
        if not step.complete or not len(own):
            continue
        start_ns, end_ns = step.start_ns, step.start_ns + step.step_ns
        time = Intervals.union_of(found.start_ns[own], found.end_ns[own]).clip(start_ns, end_ns)
        counted = own[lanes.counted[own]]
        exposed_ns = (time - lanes.compute).len_ns
        rows.append(
            GradientSum(
                step=step.step,
                count=len(counted),
                in_backward=int(running.covers(found.launch_ns[counted]).sum()),
                exposed_ns=exposed_ns,
                hideable_ns=min(exposed_ns, backward.clip(start_ns, end_ns).len_ns),
                parameters=next((use.parameters for use in uses if use.parameters), None),
            )
        )
    return rows


def _indexes(metadata: CaptureMetadata, groups: Sequence[GroupKey], uses: Sequence[CommunicationUse]) -> list[int]:
    """Of the groups that these uses name, the indexes into `groups`."""
    named = {use.group for use in uses}
    keys = {key_of_recorded_group(group, metadata) for group in metadata.groups if group.id in named}
    return [index for index, key in enumerate(groups) if key in keys]


def manual_data_parallel(run: Run) -> tuple[Finding, ...]:
    """One finding about the rank-steps in which gradients were reduced by hand, if it takes a notable time."""
    rows = {(s.rank, row.step): row for s in run.ranks for row in s.gradients}
    steps = {(s.rank, step.step): step.step_ns for s in run.ranks for step in s.steps}
    if not rows:
        return ()
    share = sum(row.exposed_ns for row in rows.values()) / max(sum(steps[key] for key in rows), 1)
    exposed_ns = statistics.fmean(row.exposed_ns for row in rows.values())
    count = statistics.median(row.count for row in rows.values())
    in_backward = sum(row.in_backward for row in rows.values())
    parameters = next((row.parameters for row in rows.values() if row.parameters), None)
    saving_ns = saving_of_ns(run, {key: row.hideable_ns for key, row in rows.items()})
    how_many = f"{count:g} all-reduce{'s' * (count != 1)} a step"
    if parameters is not None and count == parameters:
        how_many += ", one a parameter"
    if 2 * in_backward < sum(row.count for row in rows.values()):
        when = "started only after the backward pass had ended, so that nothing could overlap"
    else:
        when = "issued one by one in the backward pass"
    text = (
        f"gradients are averaged by hand: {how_many}, {when} ({exposed_ns / 1e6:.1f} ms a step exposed, "
        f"{share:.0%}); DistributedDataParallel reduces them in buckets while the backward pass runs"
    )
    if saving_ns is not None and saving_ns > 0:
        text += f", which would save up to {saving_ns / 1e6:.1f} ms a step"
    evidence = {
        "all_reduces_per_step": count,
        "parameters": parameters,
        "in_backward": in_backward,
        "exposed_ns": int(exposed_ns),
        "exposed_share": share,
    }
    return (
        Finding(severity="warning" if share >= _NOTABLE else "info", text=text, saving_ns=saving_ns, evidence=evidence),
    )
