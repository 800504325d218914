"""When one rank computes, communicates and copies.

On a GPU rank the lanes are device events. On a CPU rank they are operators and `gloo:*` spans, without the time in
which the calling thread was blocked (docs/definitions.md, "Lanes").

Exposed time, the one definition: every instant in which communication runs and no compute does is charged to one
communication, the one that ends last of those that run then. The step goes on when that does.

So the exposed times of the rows of any table sum to the step's exposed communication, to the ns.

    compute     ####                  ####
    tp              ======                    charged: nothing, as dp ends later
    dp               ============             from its begin to its end; tp is charged for what is before that
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from tracekit.model.communication import CommunicationEvents, FlightRecorderMatch
from tracekit.model.events import Bool, DecodedTrace, EventTable, Int64
from tracekit.model.intervals import EMPTY, Intervals
from tracekit.model.spans import LABEL_PREFIX, WAIT_SPAN
from tracekit.model.summary import StepParts
from tracekit.rank.communication_rules import CommunicationRule
from tracekit.rank.device_communication import device_communication
from tracekit.rank.host_communication import (
    HostCommunication,
    host_communication,
    is_span,
    point_to_point,
)
from tracekit.rank.kernel_launches import DeviceEvents, device_events
from tracekit.rank.missing_kernels import KernelLaunches, kernel_launches, unrecorded_device
from tracekit.rank.phases import AUTOGRAD_NODE_PREFIX, autograd_threads
from tracekit.rank.shapes import blocking_calls
from tracekit.rank.steps import RECORDED_STEPS, StepSearch, StepWindows, step_windows

_LABELS = (LABEL_PREFIX, "FSDP::", "FullyShardedDataParallel.", "DistributedDataParallel.", "PP:")
# Nodes that DTensor and functional collectives add to the autograd graph, around operators, views, and waits.
_GRAPH_LABELS = (
    *("Redistribute", "NestedRedistribute", "_FromTorchTensor", "_ToTorchTensor"),
    "GeneratedBackwardFor__c10d",
)
# Operators of torch that contain a dispatch, such as aten::view_as, and nodes that torch generates, such as
# AddmmBackward0: everything they compute is in operators.
_COMPOSITE = re.compile(rf"aten::\w+|(?:{AUTOGRAD_NODE_PREFIX})?\w+Backward\d+")
VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        *("view", "view_as", "_unsafe_view", "_reshape_alias", "alias", "detach", "as_strided", "t", "transpose"),
        *("permute", "expand", "expand_as", "unsqueeze", "squeeze", "select", "slice", "narrow", "chunk", "split"),
        *("split_with_sizes", "unbind", "unfold", "diagonal", "movedim", "view_as_real", "view_as_complex"),
    )
) | {"detach"}
"""Operators that only look at a tensor in another way.

A thread that loses its core in one seems to compute for long.
"""
# For an operator on a tensor subclass (a DTensor, the result of a collective), Python decides here what to run.
_DISPATCH = "PythonSubclass"
# Between issue and wait Python takes some 10 us, ten times as much on a busy machine. Computing takes longer.
_IMMEDIATE_WAIT_NS = 500_000
_COMMUNICATION_OPERATORS = ("c10d::", "_c10d_functional::", "c10d_functional::")


@dataclass(frozen=True, kw_only=True, eq=False)
class Lanes:
    """The lanes of one recording, with what they were made from.

    Attributes:
        communication_events: n of them.
        window: the index of the step window of each communication event, or -1, int64 [n].
        counted: False for the second and further spans of a collective that ran as several, bool [n].
        threads: tracks of the step and of autograd.
        compute_rows: rows of the events that make up the compute lane, int64 [c].
        communicates: which device events are communication, bool [device events].
        computes: which device events make up the compute lane, bool [device events]; none on a CPU rank.
        launches: the calls that launch kernels.
        unrecorded: why nothing is known of what the rank's device did; None if it is, or if the rank has no device.
        flight_recorder: None where the events themselves name their collectives.
        device_behind_ns: by how much device events were shifted, as the device's clock was behind the host's.
        overlapping: how many kernels were cut off where the next one of their stream begins.
    """

    device: Literal["gpu", "cpu"]
    compute: Intervals
    communication: Intervals
    copy: Intervals
    communication_events: CommunicationEvents
    device_events: DeviceEvents
    windows: StepWindows
    window: Int64
    counted: Bool
    threads: Int64
    compute_rows: Int64
    communicates: Bool
    computes: Bool
    launches: KernelLaunches
    unrecorded: str | None = None
    flight_recorder: FlightRecorderMatch | None = None
    device_behind_ns: int = 0
    overlapping: int = 0

    @property
    def is_empty(self) -> bool:
        """Return whether the rank neither computes, communicates nor copies at any time."""
        return not len(self.compute) and not len(self.communication) and not len(self.copy)

    @cached_property
    def exposed_communication(self) -> Intervals:
        return self.communication - self.compute

    @cached_property
    def exposed_copy(self) -> Intervals:
        return self.copy - self.compute - self.communication

    @cached_property
    def busy(self) -> Intervals:
        """Return when the rank computes, communicates or copies; it is idle at any other time."""
        lanes = (self.compute, self.communication, self.copy)
        return Intervals.union_of(
            np.concatenate([lane.start_ns for lane in lanes]), np.concatenate([lane.end_ns for lane in lanes])
        )

    @cached_property
    def idle(self) -> Intervals:
        """Return when the rank is not busy, from the first window to the end of the last."""
        return self.busy.gaps(int(self.windows.start_ns[0]), int(self.windows.end_ns.max()))


@dataclass(frozen=True, kw_only=True, eq=False)
class CompleteSteps:
    """Where sums over complete steps are taken.

    Attributes:
        windows: the complete ones, bool [step windows].
        time: of these windows.
        counted: the communication events that count there, by their launch, bool [communication events]. A collective
            that ran as several spans counts once.
    """

    lanes: Lanes
    windows: Bool
    time: Intervals
    counted: Bool

    @cached_property
    def exposed_ns(self) -> Int64:
        """The exposed time there that is charged to each communication event, int64 [communication events]."""
        return exposed_by_event(self.lanes.communication_events, self.time - self.lanes.compute)


def complete_steps(lanes: Lanes, steps: Sequence[StepParts]) -> CompleteSteps:
    """Return the windows of the complete ones among `steps`."""
    complete_numbers = {step.step for step in steps if step.complete}
    is_complete = np.array([int(step) in complete_numbers for step in lanes.windows.step], dtype=np.bool_)
    return CompleteSteps(
        lanes=lanes,
        windows=is_complete,
        time=Intervals.union_of(lanes.windows.start_ns[is_complete], lanes.windows.end_ns[is_complete]),
        counted=lanes.counted & (lanes.window >= 0) & is_complete[np.maximum(lanes.window, 0)],
    )


def build_lanes(
    trace: DecodedTrace,
    rules: Sequence[CommunicationRule],
    *,
    device: DeviceEvents | None = None,
    search: StepSearch = RECORDED_STEPS,
) -> Lanes:
    """Return lanes and step windows of one trace.

    `device`: its device events, if they are known already.
    """
    events = trace.events
    device = device_events(events) if device is None else device
    launches = kernel_launches(events, device)
    unrecorded = unrecorded_device(trace, device, launches)
    if len(device.row) or unrecorded is not None:
        events_found, communicates = device_communication(trace, device, rules)
        computes = device.is_kernel & ~communicates
        compute_row = device.row[computes]
        copy_row = device.row[~device.is_kernel & ~communicates]
        windows = step_windows(trace, device, computes, events_found, search)
        return Lanes(
            device="gpu",
            compute=Intervals.of_events(events, compute_row),
            communication=Intervals.union_of(events_found.start_ns, events_found.end_ns),
            copy=Intervals.of_events(events, copy_row),
            communication_events=events_found,
            device_events=device,
            windows=windows,
            window=windows.index_of_device(device.rows(communicates), events_found.start_ns),
            counted=np.ones(len(events_found), dtype=np.bool_),
            threads=_threads(events, windows),
            compute_rows=compute_row,
            communicates=communicates,
            computes=computes,
            launches=launches,
            unrecorded=unrecorded,
        )
    none = np.zeros(len(device.row), dtype=np.bool_)
    communication = host_communication(trace)
    events_found = communication.events
    windows = step_windows(trace, device, none, events_found, search)
    threads = _threads(events, windows)
    compute, working = _host_compute(trace, threads, communication)
    return Lanes(
        device="cpu",
        compute=compute,
        communication=Intervals.union_of(events_found.start_ns, events_found.end_ns),
        copy=EMPTY,
        communication_events=events_found,
        device_events=device,
        windows=windows,
        window=windows.index_of(events_found.launch_ns),
        counted=communication.counted,
        threads=threads,
        compute_rows=working,
        communicates=none,
        computes=none,
        launches=launches,
        flight_recorder=communication.flight_recorder if trace.header.metadata is not None else None,
    )


def _threads(events: EventTable, windows: StepWindows) -> Int64:
    """Return the step's thread and the autograd engine's, without those on which Gloo runs."""
    gloo = events.tracks_of(events.named(is_span) & ~point_to_point(events))
    candidates = np.setdiff1d(autograd_threads(events), gloo)
    return np.union1d(candidates, [windows.thread] if windows.thread >= 0 else []).astype(np.int64)


def _host_compute(trace: DecodedTrace, threads: Int64, communication: HostCommunication) -> tuple[Intervals, Int64]:
    """Return the compute lane, and the rows of its operators."""
    events = trace.events
    operator = events.in_category("cpu_op")
    label = events.named(_is_label)
    dispatch = events.named(_DISPATCH.__eq__)
    span = events.named(is_span)  # messages run on the calling thread
    view = events.named(VIEWS.__contains__)
    composite = events.named(lambda name: _COMPOSITE.fullmatch(name) is not None)
    communicates = events.named(lambda name: name.startswith(_COMMUNICATION_OPERATORS))
    waits = events.named(WAIT_SPAN.__eq__)
    # The capture records the waits of Python code. What C++ code awaits, as DDP's reducer does, leaves no span.
    awaited = _awaited_by_spans(events, communication.operator_row, waits)
    compute = EMPTY
    rows = [np.empty(0, dtype=np.int64)]
    for thread in threads:
        on_thread = operator & (events.track == thread)
        dispatching = np.flatnonzero(on_thread & dispatch)
        working = np.flatnonzero(on_thread & ~label & ~communicates & ~dispatch & ~span)
        communicating = np.flatnonzero(on_thread & communicates)
        rows.append(working)
        blocked = Intervals.of_events(events, communicating)
        spans = np.flatnonzero(waits & (events.track == thread))
        blocked = blocked | _recorded_waits(events, spans, working, communicating)
        unawaited = np.flatnonzero(~awaited & (events.track[communication.operator_row] == thread))
        blocked = blocked | _inferred_waits(events, unawaited, working, communication)
        compute = compute | (_compute_time(events, working, dispatching, composite, view) - blocked)
    return compute, np.concatenate(rows)


def _is_label(name: str) -> bool:
    return name.startswith(_LABELS) or name.removeprefix(AUTOGRAD_NODE_PREFIX).startswith(_GRAPH_LABELS)


def _compute_time(events: EventTable, working: Int64, dispatching: Int64, composite: Bool, view: Bool) -> Intervals:
    """Return when operators compute.

    A view computes nothing. Left out is the time in which an operator only dispatches: those operators, the `composite`
    ones around them, and the time inside a dispatch in which no inner operator runs.
    """
    if not len(dispatching):
        return Intervals.of_events(events, working[~view[working]])
    working = working[np.argsort(events.start_ns[working], kind="stable")]
    # An operator that is dispatched begins with the dispatch, and all its work is inside that.
    enclosing = np.searchsorted(events.start_ns[working], events.start_ns[dispatching], side="right") - 1
    has_operator = (enclosing >= 0) & (events.end_ns[working[np.maximum(enclosing, 0)]] >= events.end_ns[dispatching])
    working = np.delete(working, enclosing[has_operator])
    starts_ns = np.sort(events.start_ns[dispatching])
    first_inside = np.searchsorted(starts_ns, events.start_ns[working], side="left")
    dispatches_inside = np.searchsorted(starts_ns, events.end_ns[working], side="left") > first_inside
    dispatching_operators = working[dispatches_inside & ~composite[working]]
    outside = Intervals.of_events(events, dispatching_operators) - Intervals.of_events(events, dispatching)
    return outside | Intervals.of_events(events, working[~dispatches_inside & ~view[working]])


def _recorded_waits(events: EventTable, waits: Int64, working: Int64, communicating: Int64) -> Intervals:
    """Return the wait spans, each with the moment between the call's `c10d::*` operator and its wait.

    That moment counts if no operator is in it and it is short. It may be long, as on a busy machine, if the call says
    that it blocks.
    """
    start_ns, end_ns = events.start_ns[waits].copy(), events.end_ns[waits]
    if not len(communicating):
        return Intervals.union_of(start_ns, end_ns)
    communicating = communicating[np.argsort(events.end_ns[communicating], kind="stable")]
    begun_ns = np.sort(events.start_ns[working])
    before = np.searchsorted(events.end_ns[communicating], start_ns, side="right") - 1
    latest = communicating[np.maximum(before, 0)]
    issued_ns = events.end_ns[latest]
    between = np.searchsorted(begun_ns, start_ns, side="left") - np.searchsorted(begun_ns, issued_ns, side="left")
    soon = (start_ns - issued_ns < _IMMEDIATE_WAIT_NS) | blocking_calls(events)[latest]
    is_immediate = (before >= 0) & (between == 0) & soon
    start_ns[is_immediate] = issued_ns[is_immediate]
    return Intervals.union_of(start_ns, end_ns)


def _awaited_by_spans(events: EventTable, issuing: Int64, waits: Bool) -> Bool:
    """Return which of the `issuing` operators, int64 [o], have a recorded wait, bool [o].

    A wait is for the last collective issued before that no other is for: a call that blocks waits for its own.
    """
    waits = waits | events.named(lambda name: name.endswith("c10d_functional::wait_tensor"))
    rows = np.concatenate([issuing, np.flatnonzero(waits)])
    unawaited, awaited = [], np.zeros(len(issuing), dtype=np.bool_)
    for i in np.argsort(events.start_ns[rows], kind="stable").tolist():
        if i < len(issuing):
            unawaited.append(i)
        elif unawaited:
            awaited[unawaited.pop()] = True
    return awaited


def _inferred_waits(
    events: EventTable, issuing: Int64, operators: Int64, communication: HostCommunication
) -> Intervals:
    """Return waits for what the operators of communication at the positions `issuing`, int64 [i], issued.

    They are the self time of operators around such a collective, while what they issued is in flight.
    """
    issue_ns = events.start_ns[communication.operator_row[issuing]]
    start_ns, end_ns = events.start_ns[operators], events.end_ns[operators]
    holds = np.searchsorted(issue_ns, end_ns, side="left") > np.searchsorted(issue_ns, start_ns, side="left")
    around = Intervals.of_events(events, operators[holds])
    inside = around.covers(issue_ns)
    issuing, issue_ns = issuing[inside], issue_ns[inside]
    outermost_end_ns = around.end_ns[np.searchsorted(around.start_ns, issue_ns, side="right") - 1]
    flight = Intervals.union_of(issue_ns, np.minimum(communication.flight_end_ns[issuing], outermost_end_ns))
    return (around - Intervals.of_events(events, operators[~holds])) & flight


def exposed_by_event(communication: CommunicationEvents, without_compute: Intervals) -> Int64:
    """Return the exposed time that is charged to each of n communication events, int64 [n], in ns.

    `without_compute` is when the rank does not compute, in the steps that count. Of events that end together the first
    to start is charged, as a rule of thumb: nothing tells which one the step waits for. Of events at the same time the
    kind decides, so that the order of a file's events does not.
    """
    order = np.lexsort((communication.kind, communication.end_ns, communication.start_ns))
    start_ns, end_ns = communication.start_ns[order], communication.end_ns[order]
    latest_ns = np.maximum.accumulate(end_ns)
    is_latest = np.diff(latest_ns, prepend=np.iinfo(np.int64).min) > 0
    holder = np.maximum.accumulate(np.where(is_latest, np.arange(len(order)), 0))
    until_ns = np.minimum(np.append(start_ns[1:], np.iinfo(np.int64).max), latest_ns)
    charged_ns = without_compute.covered_ns(start_ns, np.maximum(start_ns, until_ns))
    result = np.zeros(len(order), dtype=np.int64)
    np.add.at(result, order[holder], charged_ns)
    return result
