"""Finds the pipeline actions of one rank in the spans of its trace.

With `torch.distributed.pipelining` the spans name kind, stage and microbatch. Spans of the capture are preferred to
those of torch, in which a CPU rank waits for its receives first. If torch has one label for a forward and a backward
together, no actions are known.

A rank that exchanges messages without such spans may run a pipeline, too. Its forward and backward passes are the
actions, and `manual` decides, from all ranks, whether they are a pipeline:

* A pass whose label names a microbatch is an action. Otherwise:
* A forward action F begins with the first forward pass after a message or a backward, or with a module that the F
  before it has called already. It lasts until the next such point. Each backward pass is an action B.
* A forward pass between two backwards for which nothing was received is the loss of the second one, and part of it.
* The microbatch is the number of the F, or of the B, within the step. The stage is not known yet.

On a GPU rank an action lasts from the first to the last compute kernel that was launched in its span.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tracekit.explain.pipeline.tables import Actions
from tracekit.model.communication import KINDS, Messages
from tracekit.model.events import ABSENT, Bool, DecodedTrace, EventTable, Int32, Int64
from tracekit.model.intervals import EMPTY, Intervals
from tracekit.model.metadata import CaptureMetadata
from tracekit.model.spans import ACTION_KINDS, WAIT_SPAN, parse_pipeline_span, parse_torch_action
from tracekit.model.summary import PipelineMembership
from tracekit.rank.device_communication import MESSAGE_KINDS
from tracekit.rank.groups import key_of_recorded_group
from tracekit.rank.kernel_launches import device_extent
from tracekit.rank.lanes import Lanes
from tracekit.rank.passes import RECEIVES, Passes, host_spans, host_waits, rank_passes, receive_waits

_FORWARD, _BACKWARD = ACTION_KINDS.index("F"), ACTION_KINDS.index("B")
_OVERLAPPED = "OVERLAP_F_B"


@dataclass(frozen=True, kw_only=True, eq=False)
class _ActionSpans:
    """p spans in order of time, which are parts of n actions.

    Attributes:
        start_ns: int64 [p], on the host.
        end_ns: int64 [p], on the host.
        waits_inside: whether a span begins with the wait for what the action receives.
        action: int64 [p], the action that each span is a part of.
        kind: int32 [n], index into `ACTION_KINDS`.
        stage: int32 [n], or -1.
        microbatch: int32 [n].
    """

    start_ns: Int64
    end_ns: Int64
    waits_inside: bool
    action: Int64
    kind: Int32
    stage: Int32
    microbatch: Int32


def rank_actions(trace: DecodedTrace, lanes: Lanes, messages: Messages, loading: Intervals) -> Actions:
    """Return the actions of the recorded steps, in order of time.

    `loading` is when the rank loads data and does not compute.
    """
    events = trace.events
    parts = _named_actions(events)
    if parts is None and not len(messages):
        return Actions.empty()
    if parts is None:
        parts = _unnamed_actions(lanes, rank_passes(events, lanes, messages.issue_ns, messages.is_send), messages)
    count = len(parts.kind)
    if not count:
        return Actions.empty()
    host_start_ns = _smallest(parts.start_ns, parts.action, count)
    start_ns, end_ns = _times(events, lanes, parts)
    # The host of a GPU rank has none, and spans of actions without the capture begin behind theirs.
    has_waits = lanes.device == "cpu" and (not parts.waits_inside or bool(events.named(WAIT_SPAN.__eq__).any()))
    waits = receive_waits(events, lanes) if has_waits else EMPTY
    work_ns, idle_ns = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    np.add.at(work_ns, parts.action, (end_ns - start_ns) - waits.covered_ns(start_ns, end_ns))
    if lanes.device == "gpu":
        np.add.at(idle_ns, parts.action, (end_ns - start_ns) - lanes.busy.covered_ns(start_ns, end_ns))
    first_ns, last_ns = _smallest(start_ns, parts.action, count), -_smallest(-end_ns, parts.action, count)
    window = lanes.windows.index_of(host_start_ns)
    actions = Actions(
        step=np.where(window >= 0, lanes.windows.step[window], ABSENT),
        stage=parts.stage,
        microbatch=parts.microbatch,
        kind=parts.kind,
        issue_ns=host_start_ns,
        start_ns=first_ns,
        end_ns=last_ns,
        wait_ns=last_ns - first_ns - work_ns,
        idle_ns=idle_ns,
        other_ns=0 * first_ns,
        data_ns=0 * first_ns,
    )
    order = np.argsort(first_ns, kind="stable")
    order = order[window[order] >= 0]
    actions, begin_ns = actions.rows(order), lanes.windows.start_ns[window[order]]
    before_ns = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(actions.end_ns)[:-1])[: len(actions)]
    since_ns = np.minimum(np.maximum(before_ns, begin_ns), actions.start_ns)
    found = lanes.communication_events
    collective = ~np.isin(found.kind, (*MESSAGE_KINDS, KINDS.index("unclassified")))
    other = lanes.compute | lanes.copy | Intervals.union_of(found.start_ns[collective], found.end_ns[collective])
    blocked = (Intervals.union_of(*host_waits(events, lanes)) if lanes.device == "cpu" else EMPTY) - waits - other
    ended_ns = np.append(0, waits.end_ns)[np.searchsorted(waits.end_ns, actions.start_ns, side="right")]
    blocked_ns = blocked.covered_ns(np.clip(ended_ns, since_ns, actions.start_ns), actions.start_ns)
    return replace(
        actions,
        other_ns=other.covered_ns(since_ns, actions.start_ns) + blocked_ns,
        data_ns=loading.covered_ns(since_ns, actions.start_ns),
    )


def recorded_pipeline(metadata: CaptureMetadata | None) -> PipelineMembership | None:
    """Return the pipeline that the capture described, with the ranks whose stages exchange activations."""
    if metadata is None or metadata.pipeline is None:
        return None
    group = next((group for group in metadata.groups if group.id == metadata.pipeline.group), None)
    ranks = () if group is None else tuple(sorted(key_of_recorded_group(group, metadata).ranks))
    return PipelineMembership(layout=metadata.pipeline, ranks=ranks)


def _named_actions(events: EventTable) -> _ActionSpans | None:
    """Return the actions that spans name, None without such spans. A loss is a part of the forward before it."""
    spans = {i: span for i, name in enumerate(events.strings) if (span := parse_pipeline_span(name)) is not None}
    waits_inside = not spans
    if not spans:
        spans = {i: span for i, name in enumerate(events.strings) if (span := parse_torch_action(name)) is not None}
        if any(_OVERLAPPED in name for name in events.strings):
            return _NO_ACTIONS
    if not spans:
        return None
    rows = host_spans(events, list(spans))
    action: list[int] = []
    kinds: list[int] = []
    stages: list[int] = []
    microbatches: list[int] = []
    latest: dict[tuple[int, int], int] = {}
    for name in events.name[rows].tolist():
        span = spans[name]
        key = (span.stage, span.microbatch)
        if span.loss and key in latest:
            action.append(latest[key])
            continue
        if span.kind == "F":
            latest[key] = len(kinds)
        action.append(len(kinds))
        kinds.append(ACTION_KINDS.index(span.kind))
        stages.append(span.stage)
        microbatches.append(span.microbatch)
    times_ns = (events.start_ns[rows], events.end_ns[rows])
    return _action_spans(times_ns, action, kinds, stages, microbatches, waits_inside=waits_inside)


def _unnamed_actions(lanes: Lanes, passes: Passes, messages: Messages) -> _ActionSpans:
    """Return forward and backward passes as actions of one stage, which is not known yet."""
    window = lanes.windows.index_of(passes.start_ns)
    passes, window = passes.rows(window >= 0), window[window >= 0]
    if not len(messages) or not len(passes):
        return _NO_ACTIONS
    if (passes.microbatch != ABSENT).all():
        return _action_spans(
            (passes.start_ns, passes.end_ns),
            list(range(len(passes))),
            passes.kind.tolist(),
            [ABSENT] * len(passes),
            passes.microbatch.tolist(),
            waits_inside=True,
        )
    sent_before = np.searchsorted(messages.issue_ns, passes.start_ns, side="right").tolist()
    windows, modules = window.tolist(), passes.module.tolist()
    pass_kinds = np.where(_losses(passes, window, messages), _BACKWARD, passes.kind).tolist()
    action: list[int] = []
    kinds: list[int] = []
    microbatches: list[int] = []
    counts: dict[tuple[int, int], int] = {}
    called: set[int] = set()
    for i, pass_kind in enumerate(pass_kinds):
        continues_forward = (
            i > 0
            and pass_kind == _FORWARD == kinds[-1]
            and windows[i] == windows[i - 1]
            and sent_before[i] == sent_before[i - 1]
            and modules[i] not in called
        )
        ends_loss = i > 0 and pass_kind == _BACKWARD and passes.kind[i - 1] != pass_kinds[i - 1]
        if not continues_forward and not ends_loss:
            called = set()
            number = counts.get((windows[i], pass_kind), 0)
            counts[windows[i], pass_kind] = number + 1
            kinds.append(pass_kind)
            microbatches.append(number)
        called.add(modules[i])
        action.append(len(kinds) - 1)
    return _action_spans((passes.start_ns, passes.end_ns), action, kinds, [ABSENT] * len(kinds), microbatches)


def _losses(passes: Passes, window: Int64, messages: Messages) -> Bool:
    """Return which forward passes, bool [p], compute the loss of the backward behind them, as all forwards came first.

    They follow a backward, and nothing was received for them, as it was for other forwards of the rank.
    """
    received, exchanged = (
        np.searchsorted(times_ns, passes.start_ns)
        for times_ns in (messages.issue_ns[~messages.is_send], messages.issue_ns)
    )
    forward, backward = passes.kind == _FORWARD, passes.kind == _BACKWARD
    new = np.diff(received, prepend=0) > 0
    result = forward & ~new
    result[1:] &= backward[:-1]
    result[:-1] &= backward[1:] & (window[1:] == window[:-1]) & (exchanged[1:] == exchanged[:-1])
    result[[0, -1]] = False
    return np.asarray(result & (forward & new).any())


def _action_spans(
    times_ns: tuple[Int64, Int64],
    action: list[int],
    kinds: list[int],
    stages: list[int],
    microbatches: list[int],
    *,
    waits_inside: bool = False,
) -> _ActionSpans:
    return _ActionSpans(
        start_ns=times_ns[0],
        end_ns=times_ns[1],
        waits_inside=waits_inside,
        action=np.array(action, dtype=np.int64),
        kind=np.array(kinds, dtype=np.int32),
        stage=np.array(stages, dtype=np.int32),
        microbatch=np.array(microbatches, dtype=np.int32),
    )


_NO_ACTIONS = _action_spans((np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)), [], [], [], [])


def _times(events: EventTable, lanes: Lanes, parts: _ActionSpans) -> tuple[Int64, Int64]:
    """Return when the work of each span began and ended, int64 [p] each."""
    start_ns, end_ns = parts.start_ns, parts.end_ns
    if lanes.device == "cpu" and parts.waits_inside:
        start_ns = _after_receives(lanes, start_ns, end_ns)
    device = lanes.device_events
    computes = device.is_kernel & device.linked & ~lanes.communicates
    kernels = device.row[computes][np.argsort(device.launch_ns[computes], kind="stable")]
    if lanes.device == "cpu" or not len(kernels):
        return start_ns, end_ns
    launch_ns = np.sort(device.launch_ns[computes])
    first, stop = np.searchsorted(launch_ns, start_ns), np.searchsorted(launch_ns, end_ns)
    return device_extent(events, kernels, first, stop, start_ns, end_ns)


def _after_receives(lanes: Lanes, start_ns: Int64, end_ns: Int64) -> Int64:
    """Return when each span had received what it waits for at its beginning, int64 [p]."""
    found = lanes.communication_events
    received_ns = np.sort(found.end_ns[np.isin(found.kind, RECEIVES)])
    if not len(received_ns):
        return start_ns
    last_ns = received_ns[np.maximum(np.searchsorted(received_ns, end_ns, side="left") - 1, 0)]
    return np.where((last_ns > start_ns) & (last_ns < end_ns), last_ns, start_ns)


def _smallest(values: Int64, group: Int64, count: int) -> Int64:
    """Return the smallest value of each group, int64 [count]. values, group: int64 [p]."""
    result = np.full(count, np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(result, group, values)
    return result
