"""The forward and backward passes of one rank, as the host began them.

They come from the first of these that a trace has:

1. the actions of a pipeline that spans name;
2. the passes that the capture records;
3. labels of microbatches, such as `Forward 3`;
4. on a GPU rank that sends or receives, its launches. A pass is a run of compute kernels of one direction, between two
   messages. What the autograd engine launches is backward. What is launched while operators join the autograd graph is
   forward. The optimizer is neither.
5. on a CPU rank that sends or receives, its operators. What the autograd engine runs between two messages, or waits for
   them, is a backward pass. Operators of the forward phase between two are a forward pass if the first of these
   receives or the second sends.

A loop without modules has spans of its backward passes alone. Then its forward passes come from 4 or 5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Bool, EventTable, Int32, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.spans import (
    ACTION_KINDS,
    BACKWARD_SPAN,
    WAIT_SPAN,
    parse_forward_span,
    parse_microbatch_label,
    parse_pipeline_span,
    parse_torch_action,
)
from tracekit.rank.device_communication import MESSAGE_KINDS
from tracekit.rank.lanes import VIEWS, Lanes
from tracekit.rank.phases import backward_operators, is_autograd_node, phase_timeline
from tracekit.rank.steps import StepWindows

RECEIVES = tuple(KINDS.index(kind) for kind in ("recv", "send_recv"))
_FORWARD, _BACKWARD = ACTION_KINDS.index("F"), ACTION_KINDS.index("B")
_LEAST_WORK = 0.05  # of the median of its direction: less is no pass, but what a loop does between two
# What makes a buffer or a batch is no part of a pass. Names of such operators begin so.
_FACTORIES = tuple(
    f"aten::{name}" for name in ("empty", "new_", "zeros", "ones", "full", "rand", "normal_", "arange", "eye")
)
# Nor is what selects, joins, moves or reads parts of tensors, as messages of Python objects do.
_MOVES = frozenset(
    f"aten::{name}"
    for name in (
        *("reshape", "detach_", "set_", "lift_fresh", "cat", "copy_", "clone", "contiguous", "to", "_to_copy"),
        *("resolve_conj", "resolve_neg", "fill_", "item", "_local_scalar_dense"),
    )
)
_Named = tuple[int, int, int]  # kind, module, microbatch


@dataclass(frozen=True, kw_only=True, eq=False)
class Passes(Columnar):
    """p passes, in order of time.

    Attributes:
        start_ns: on the host, int64 [p].
        end_ns: on the host, int64 [p].
        kind: index of "F" or "B" in `ACTION_KINDS`, int32 [p].
        module: number of the program's module that a forward pass calls, or -1, int32 [p].
        microbatch: that a label names, or -1, int32 [p].
    """

    start_ns: Int64
    end_ns: Int64
    kind: Int32
    module: Int32
    microbatch: Int32


def rank_passes(events: EventTable, lanes: Lanes, issue_ns: Int64, is_send: Bool) -> Passes:
    """Return the passes of one recording.

    `issue_ns`, int64 [n], ascending: when it issued its messages. `is_send`, bool [n]: which of them it sent.
    """
    passes = Passes.empty()
    for named in (_of_action, _of_capture, _of_label):
        passes = _spans(events, {i: found for i, name in enumerate(events.strings) if (found := named(name))})
        if len(passes):
            break
    if lanes.device == "gpu":
        passes = _without_messages(passes, lanes)
    if not len(issue_ns) or (passes.kind == _FORWARD).any():
        return passes
    if lanes.device == "gpu":
        derived = _launched_passes(events, lanes, issue_ns)
    else:
        passes = passes if len(passes) else _engine_passes(events, lanes, issue_ns)
        derived = _operator_passes(events, lanes, passes, issue_ns, is_send)
    if not len(passes):
        return derived
    passes = Passes.concatenate([passes, derived.rows(derived.kind == _FORWARD)])
    return passes.rows(np.argsort(passes.start_ns, kind="stable"))


def kinds_in_order(
    passes: Passes, windows: StepWindows, issue_ns: Int64, is_send: Bool, after: Int32, before: Int32
) -> tuple[Int32, Int32]:
    """Return of which kind of pass each message is the result, and of which the input: int32 [n].

    A loop may run a forward and a backward, and then send the results of both, and receive the next inputs of both, in
    their order. If less is sent or received, its kind is not known: -1. issue_ns: int64 [n], ascending. after, before:
    the kinds of the pass before and after each, int32 [n], which hold where only one kind is between two exchanges.
    """
    after, before = after.copy(), before.copy()
    index = np.searchsorted(passes.start_ns, issue_ns, side="right")
    window, window_of_pass = windows.index_of(issue_ns), windows.index_of(passes.start_ns)
    first = np.flatnonzero(np.diff(index, prepend=ABSENT)).tolist()
    stops = [*first[1:], len(index)]
    bounds = [0, *index[first].tolist(), len(passes)]
    for i, (start, stop) in enumerate(zip(first, stops, strict=True)):
        for kinds, of_side, since, until in (
            (after, is_send[start:stop], bounds[i], bounds[i + 1]),
            (before, ~is_send[start:stop], bounds[i + 1], bounds[i + 2]),
        ):
            turn = passes.kind[since:until][window_of_pass[since:until] == window[start]]
            rows = start + np.flatnonzero(of_side)
            if len(rows) and len(np.unique(turn)) > 1:
                each, left = divmod(len(rows), len(turn))
                kinds[rows] = ABSENT if left else np.repeat(turn, each)
    return after, before


def host_spans(events: EventTable, names: list[int]) -> Int64:
    """Return the rows of the spans of some names, in order of time, without the copies that a device's tracks show."""
    return events.each_once(np.isin(events.name, names) & ~events.in_category("gpu_user_annotation")).astype(np.int64)


def _of_action(name: str) -> _Named | None:
    action = parse_pipeline_span(name) or parse_torch_action(name)
    return None if action is None else (_FORWARD if action.kind == "F" else _BACKWARD, ABSENT, ABSENT)


def _of_capture(name: str) -> _Named | None:
    if name == BACKWARD_SPAN:
        return _BACKWARD, ABSENT, ABSENT
    module = parse_forward_span(name)
    return None if module is None else (_FORWARD, module, ABSENT)


def _of_label(name: str) -> _Named | None:
    label = parse_microbatch_label(name)
    return None if label is None else (ACTION_KINDS.index(label[0]), ABSENT, label[1])


def _spans(events: EventTable, named: dict[int, _Named]) -> Passes:
    rows = host_spans(events, list(named)) if named else np.empty(0, dtype=np.int64)
    columns = np.array([named[name] for name in events.name[rows].tolist()], dtype=np.int32).reshape(-1, 3).T
    kind, module, microbatch = columns
    return Passes(
        start_ns=events.start_ns[rows], end_ns=events.end_ns[rows], kind=kind, module=module, microbatch=microbatch
    )


def _without_messages(passes: Passes, lanes: Lanes) -> Passes:
    """Return the passes of a GPU rank, each from its first launch of compute to its last.

    A loop may receive at the beginning of a labelled pass, and send at its end.
    """
    launch_ns = _compute_launches(lanes)[1]
    first = np.searchsorted(launch_ns, passes.start_ns)
    stop = np.searchsorted(launch_ns, passes.end_ns)
    some = stop > first
    start_ns, end_ns = passes.start_ns.copy(), passes.end_ns.copy()
    start_ns[some], end_ns[some] = launch_ns[first[some]], launch_ns[stop[some] - 1] + 1
    return replace(passes, start_ns=start_ns, end_ns=end_ns)


def _compute_launches(lanes: Lanes) -> tuple[Int64, Int64]:
    """Return the compute kernels whose launch is known, int64 [k] positions among the device events, and when each was
    launched, int64 [k], ascending.
    """
    device = lanes.device_events
    computes = np.flatnonzero(device.linked & lanes.computes)
    computes = computes[np.argsort(device.launch_ns[computes], kind="stable")]
    return computes, device.launch_ns[computes]


def _launched_passes(events: EventTable, lanes: Lanes, issue_ns: Int64) -> Passes:
    """Return the runs of compute kernels between messages."""
    device = lanes.device_events
    computes, launch_ns = _compute_launches(lanes)
    kind = _directions(events, lanes, device.launch_row[computes])
    computes, launch_ns, kind = computes[kind != ABSENT], launch_ns[kind != ABSENT], kind[kind != ABSENT]
    if not len(computes):
        return Passes.empty()
    columns = np.stack((kind, np.searchsorted(issue_ns, launch_ns), lanes.windows.index_of(launch_ns)))
    first, last = _runs(columns)
    kept = _long_enough(np.add.reduceat(events.duration_ns[device.row[computes]], first), kind[first])
    first, last = first[kept], last[kept]
    return _nameless(launch_ns[first], launch_ns[last] + 1, kind[first])


def _engine_passes(events: EventTable, lanes: Lanes, issue_ns: Int64) -> Passes:
    """Return the backward passes of a CPU rank: what the autograd engine runs between messages."""
    rows = np.flatnonzero(backward_operators(events) & events.on_tracks(lanes.threads))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    start_ns, window = events.start_ns[rows], lanes.windows.index_of(events.start_ns[rows])
    rows, start_ns, window = rows[window != ABSENT], start_ns[window != ABSENT], window[window != ABSENT]
    if not len(rows):
        return Passes.empty()
    message_ns = np.sort(np.concatenate((issue_ns, receive_waits(events, lanes).start_ns)))
    first, _ = _runs(np.stack((np.searchsorted(message_ns, start_ns), window)))
    end_ns = np.maximum.reduceat(events.end_ns[rows], first)
    kind = np.full(len(first), _BACKWARD, dtype=np.int32)
    kept = _long_enough(lanes.compute.covered_ns(start_ns[first], end_ns), kind)
    return _nameless(start_ns[first[kept]], end_ns[kept], kind[kept])


def _operator_passes(events: EventTable, lanes: Lanes, backward: Passes, issue_ns: Int64, is_send: Bool) -> Passes:
    """Return the forward passes of a CPU rank: runs of operators between messages."""
    rows = lanes.compute_rows[events.track[lanes.compute_rows] == lanes.windows.thread]
    is_no_work = events.named(_is_no_work)[rows]
    # An operator inside one without work has none either, such as aten::zero_ inside aten::zeros.
    inside = Intervals.of_events(events, rows[is_no_work]).covers(events.start_ns[rows])
    rows = rows[~is_no_work & ~inside]
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    phases = phase_timeline(events, lanes.threads, lanes.windows.thread, lanes.windows.host_start_ns)
    rows = rows[phases.may_be_forward_at(events.start_ns[rows])]
    if not len(rows):
        return Passes.empty()
    start_ns, window = events.start_ns[rows], lanes.windows.index_of(events.start_ns[rows])
    waited_ns = receive_waits(events, lanes).start_ns
    message_ns = np.concatenate((issue_ns, waited_ns))
    sends = np.concatenate((is_send, np.zeros(len(waited_ns), dtype=np.bool_)))
    order = np.argsort(message_ns, kind="stable")
    message_ns, sends = message_ns[order], sends[order]
    messages_before = np.searchsorted(message_ns, start_ns)
    first, _ = _runs(np.stack((messages_before, np.searchsorted(backward.start_ns, start_ns), window)))
    end_ns = np.maximum.reduceat(events.end_ns[rows], first)
    # Messages of other steps say nothing about a pass.
    message_window = np.concatenate(([ABSENT], lanes.windows.index_of(message_ns), [ABSENT]))
    sends = np.concatenate(([True], sends, [False]))
    before, after = messages_before[first], messages_before[first] + 1
    received = ~sends[before] & (message_window[before] == window[first])
    sent = sends[after] & (message_window[after] == window[first])
    kept = (received | sent) & (window[first] != ABSENT)
    first, end_ns = first[kept], end_ns[kept]
    forward = np.full(len(first), _FORWARD, dtype=np.int32)
    kept = _long_enough(lanes.compute.covered_ns(start_ns[first], end_ns), forward)
    return _nameless(start_ns[first[kept]], end_ns[kept], forward[kept])


def _is_no_work(name: str) -> bool:
    return name in VIEWS or name in _MOVES or name.startswith(_FACTORIES)


def receive_waits(events: EventTable, lanes: Lanes) -> Intervals:
    """Return the blocking waits of the host in which a receive ended."""
    found = lanes.communication_events
    ended_ns = np.sort(found.end_ns[np.isin(found.kind, RECEIVES)])
    start_ns, end_ns = host_waits(events, lanes)
    waits = np.searchsorted(ended_ns, end_ns, side="right") > np.searchsorted(ended_ns, start_ns, side="left")
    return Intervals.union_of(start_ns[waits], end_ns[waits])


def host_waits(events: EventTable, lanes: Lanes) -> tuple[Int64, Int64]:
    """Return when each blocking wait of the host began and ended, int64 [w] each, in order of their ends.

    The capture records them. Without it, a CPU rank's message of Gloo ends when the wait for it returns, which began
    when the rank computed last, or when the wait before it returned.
    """
    waits = np.flatnonzero(events.named(WAIT_SPAN.__eq__))
    if len(waits) or lanes.device == "gpu":
        waits = waits[np.argsort(events.end_ns[waits], kind="stable")]
        return events.start_ns[waits], events.end_ns[waits]
    found, exposed = lanes.communication_events, lanes.exposed_communication
    end_ns = np.unique(found.end_ns[np.isin(found.kind, MESSAGE_KINDS)])
    within = np.searchsorted(exposed.start_ns, end_ns) - 1
    end_ns, within = end_ns[within >= 0], within[within >= 0]
    end_ns, within = end_ns[exposed.end_ns[within] >= end_ns], within[exposed.end_ns[within] >= end_ns]
    before_ns = np.append(np.iinfo(np.int64).min, end_ns)[:-1]
    return np.maximum(exposed.start_ns[within], before_ns), end_ns


def _runs(columns: Int64) -> tuple[Int64, Int64]:
    """Return the first and the last item of each run of items with equal columns; `columns` is int64 [c, n]."""
    first = np.flatnonzero(np.append(True, (columns[:, 1:] != columns[:, :-1]).any(axis=0)))
    return first, np.append(first[1:], columns.shape[1]) - 1


def _long_enough(work_ns: Int64, kind: Int32) -> Bool:
    """Return a mask of the runs that are passes, by how long they work and their direction."""
    kept = np.zeros(len(work_ns), dtype=np.bool_)
    for direction in (_FORWARD, _BACKWARD):
        alike = kind == direction
        if alike.any():
            kept |= alike & (work_ns >= _LEAST_WORK * np.median(work_ns[alike]))
    return kept


def _nameless(start_ns: Int64, end_ns: Int64, kind: Int32) -> Passes:
    none = np.full(len(kind), ABSENT, dtype=np.int32)
    return Passes(start_ns=start_ns, end_ns=end_ns, kind=kind, module=none, microbatch=none)


def _directions(events: EventTable, lanes: Lanes, launch_row: Int64) -> Int32:
    """Return whether each launch, int64 [k] rows of the event table, is of a forward or of a backward, or -1."""
    phases = phase_timeline(events, lanes.threads, lanes.windows.thread, lanes.windows.host_start_ns)
    launch_ns = events.start_ns[launch_row]
    forward = phases.may_be_forward_at(launch_ns)
    backward = _within(events, launch_row, events.named(is_autograd_node) & events.in_category("cpu_op"))
    return np.where(backward, _BACKWARD, np.where(forward, _FORWARD, ABSENT)).astype(np.int32)


def _within(events: EventTable, rows: Int64, around: Bool) -> Bool:
    """Return a mask [k] of the `rows` that began during an event of the mask `around` [n] on the same thread."""
    result = np.zeros(len(rows), dtype=np.bool_)
    for track in events.tracks_of(around):
        on_track = np.flatnonzero(events.track[rows] == track)
        running = Intervals.of_events(events, around & (events.track == track))
        result[on_track] = running.covers(events.start_ns[rows[on_track]])
    return result
