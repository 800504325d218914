"""What one rank's trace shows of FSDP: the module of each collective, and how long compute waited for each all-gather.

FSDP2 labels what it does for which module; for FSDP1 and ZeRO 3 the capture does. A collective belongs to the module
that the innermost label around its launch names. That is the module whose parameters it gathers, though an earlier
module may have asked for it. Other collectives in the groups of FSDP have a row without a module, so that none is lost.
The sum over modules is their exposed time.

The host comes to use a module at some moment. The first compute kernel launched then waits: it is FSDP's copy out of
the gathered buffer.

    compute stream   blocks.0 |======|         wait          |== blocks.1 ==|
    gathers                    launched      |== blocks.1 ==|

It could have begun when it was launched and the compute before it had ended. From there to the end of the all-gather it
waits. On a CPU rank an all-gather blocks the host: all waits for it that does not run meanwhile.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tracekit.explain.fsdp.tables import FsdpGathers, FsdpRegathers, FsdpSum
from tracekit.model.communication import KINDS, CommunicationEvents
from tracekit.model.events import ABSENT, Bool, DecodedTrace, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.metadata import CaptureMetadata
from tracekit.model.names.modules import clean_module_name
from tracekit.model.spans import parse_fsdp_span
from tracekit.rank.groups import key_of_recorded_group, strategies_of
from tracekit.rank.lanes import Lanes, complete_steps
from tracekit.rank.phases import PHASES, innermost_span
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.stats.grouped import grouped, summed

Action = Literal["gather", "gather_and_use", "use", "reduce", "other"]

# `FSDP::all_gather (blocks.0) [pg=2]`; the outermost module has no name, and a hyphen is in the pseudonym of an action
_FSDP2_LABEL = re.compile(r"FSDP::([\w-]+)(?: for .*)?(?: \((.*)\))?(?: \[pg=\d+\])?")
_FSDP2_ACTIONS: dict[str, Action] = {
    "all_gather": "gather",
    "all_gather_copy_out": "use",
    "post_backward_reduce": "reduce",
}
_FSDP1_ACTIONS: dict[str, Action] = {
    "unshard": "gather_and_use",
    "prefetch": "gather",
    "use": "use",
    "reduce": "reduce",
}
_FSDP1_WORK_LABEL = (
    "FullyShardedDataParallel._"  # around FSDP's work; `FullyShardedDataParallel.forward` is around the module's
)


@dataclass(frozen=True, kw_only=True)
class FsdpLabel:
    action: Action
    module: str | None


@dataclass(frozen=True, kw_only=True, eq=False)
class FsdpLabels:
    """The labels of one trace.

    Attributes:
        of_name: labels by the index of their text.
        rows: int64 [k], all of them on host threads, in order of time.
    """

    of_name: dict[int, FsdpLabel]
    rows: Int64

    def at(self, events: EventTable, row: int) -> FsdpLabel:
        return self.of_name[int(events.name[row])]

    def around(self, events: EventTable, communication: CommunicationEvents) -> Int64:
        """Return the row of the innermost label that names an action around each launch, or ABSENT: int64 [n]."""
        action = np.array([self.of_name[name].action for name in events.name[self.rows].tolist()], dtype=object)
        track = communication.launch_track.astype(np.int64)
        return innermost_span(events, self.rows[action != "use"], track, communication.launch_ns)

    def issued_ns(self, enclosing: Int64, communication: CommunicationEvents) -> Int64:
        """Return when the first collective of the same label was issued: int64 [n]."""
        rows, which = np.unique(enclosing, return_inverse=True)
        first_ns = np.full(len(rows), np.iinfo(np.int64).max, dtype=np.int64)
        np.minimum.at(first_ns, which, communication.launch_ns)
        return np.where(enclosing == ABSENT, communication.launch_ns, first_ns[which])

    def needed_ns(self, events: EventTable, enclosing: Int64, communication: CommunicationEvents) -> Int64:
        """Return when the host needed the module that each all-gather brings: int64 [n].

        ABSENT for other kinds, where that moment is not in the trace, and where another all-gather of the module comes
        first.
        """
        needed_ns = np.full(len(communication), ABSENT, dtype=np.int64)
        uses: dict[str | None, list[int]] = defaultdict(list)
        for row in self.rows.tolist():
            if self.at(events, row).action == "use":
                uses[self.at(events, row).module].append(int(events.start_ns[row]))
        is_gather = (enclosing != ABSENT) & (communication.kind == KINDS.index("all_gather"))
        gathers = grouped((int(enclosing[i]), i) for i in np.flatnonzero(is_gather).tolist())
        next_issue_ns: dict[str | None, int] = {}
        for row in sorted(gathers, key=lambda row: -int(events.start_ns[row])):
            label = self.at(events, row)
            issue_ns = int(communication.launch_ns[gathers[row]].min())
            if label.action == "gather_and_use":
                needed_ns[gathers[row]] = int(events.end_ns[row])
            elif label.action == "gather":
                moments = uses[label.module]
                index = bisect_left(moments, issue_ns)
                if index < len(moments) and moments[index] <= next_issue_ns.get(label.module, moments[index]):
                    needed_ns[gathers[row]] = moments[index]
            next_issue_ns[label.module] = issue_ns
        return needed_ns


def _labels(recorded: RecordedSteps) -> FsdpLabels:
    events, labels = recorded.trace.events, dict[int, FsdpLabel]()
    for i, text in enumerate(events.strings):
        if text.startswith("FSDP::") and (match := _FSDP2_LABEL.fullmatch(text)) is not None:
            action = _FSDP2_ACTIONS.get(match[1], "other")
            module = None if action == "other" else clean_module_name(match[2] or "")
            labels[i] = FsdpLabel(action=action, module=module)
        elif text.startswith(_FSDP1_WORK_LABEL):
            labels[i] = FsdpLabel(action="other", module=None)
        elif (span := parse_fsdp_span(text)) is not None:
            labels[i] = FsdpLabel(action=_FSDP1_ACTIONS[span.action], module=span.module)
    rows = events.each_once(np.isin(events.name, list(labels)) & ~events.in_category("gpu_user_annotation"))
    return FsdpLabels(of_name=labels, rows=rows)


_NOT_COLLECTIVE = np.array([KINDS.index(kind) for kind in ("send", "recv", "send_recv")])


def _enclosing(recorded: RecordedSteps) -> Int64:
    """Return the row of the label that each communication event belongs to, or ABSENT: int64 [n]."""
    return recorded.once(_labels).around(recorded.trace.events, recorded.lanes.communication_events)


def _needed_ns(recorded: RecordedSteps) -> Int64:
    communication = recorded.lanes.communication_events
    return recorded.once(_labels).needed_ns(recorded.trace.events, recorded.once(_enclosing), communication)


def fsdp_sums(recorded: RecordedSteps) -> tuple[FsdpSum, ...]:
    """Return rows by (module, kind, phase): times within the complete steps, counts by launch."""
    trace, lanes, labels = recorded.trace, recorded.lanes, recorded.once(_labels)
    events, communication, enclosing = trace.events, lanes.communication_events, recorded.once(_enclosing)
    groups = np.union1d(communication.group[enclosing != ABSENT], _shard_groups(trace.header.metadata, communication))
    in_scope: Bool = (enclosing != ABSENT) | (
        np.isin(communication.group, groups[groups != ABSENT]) & ~np.isin(communication.kind, _NOT_COLLECTIVE)
    )
    if not in_scope.any():
        return ()
    complete = complete_steps(lanes, recorded.steps)
    needed_ns = recorded.once(_needed_ns)
    ahead_ns = np.where(needed_ns == ABSENT, ABSENT, needed_ns - labels.issued_ns(enclosing, communication))
    phase = recorded.phases.at(communication.launch_ns)
    module = [labels.at(events, row).module if row != ABSENT else None for row in enclosing.tolist()]
    unit_bytes = _unit_bytes(trace.header.metadata)
    members = grouped(
        ((module[i], int(communication.kind[i]), int(phase[i])), i) for i in np.flatnonzero(in_scope).tolist()
    )
    result = []
    for (name, kind, phase_index), positions in members.items():
        of_row = np.array(positions, dtype=np.int64)
        here = of_row[complete.counted[of_row]]
        time = Intervals.union_of(communication.start_ns[of_row], communication.end_ns[of_row]) & complete.time
        if not len(here) and not len(time):
            continue
        known = ahead_ns[here] != ABSENT
        result.append(
            FsdpSum(
                module=name,
                unit_bytes=None if name is None else unit_bytes.get(name),
                shards=_members(communication, of_row),
                phase=PHASES[phase_index] if phase_index >= 0 else None,
                kind=KINDS[kind],
                count=len(here),
                size_bytes=communication.total_size_bytes(here),
                exposed_ns=int(complete.exposed_ns[of_row].sum()),
                ahead_count=int(known.sum()),
                ahead_ns=int(ahead_ns[here][known].sum()),
            )
        )
    return tuple(result)


def _members(communication: CommunicationEvents, which: Int64) -> int | None:
    """Return how many ranks take part in these collectives; None where that is not known, or differs."""
    groups = np.unique(communication.group[which]).tolist()
    members = {len(communication.groups[group].ranks) if group != ABSENT else 0 for group in groups}
    return (members.pop() or None) if len(members) == 1 else None


def _shard_groups(metadata: CaptureMetadata | None, communication: CommunicationEvents) -> Int64:
    """Return the indexes into `communication.groups` of the groups over which the capture says modules are sharded."""
    if metadata is None:
        return np.empty(0, dtype=np.int64)
    ids = {unit.shard_group for unit in metadata.fsdp}
    keys = {key_of_recorded_group(group, metadata) for group in metadata.groups if group.id in ids}
    return np.array([i for i, key in enumerate(communication.groups) if key in keys], dtype=np.int64)


def _unit_bytes(metadata: CaptureMetadata | None) -> Mapping[str, int]:
    """Return the unsharded bytes of each module's parameters, which may be sharded over several groups."""
    return {} if metadata is None else summed((unit.module, unit.unit_bytes) for unit in metadata.fsdp)


def fsdp_gathers(recorded: RecordedSteps) -> FsdpGathers:
    """Return the all-gathers of the complete steps; none where no label shows a use."""
    trace, lanes, labels = recorded.trace, recorded.lanes, recorded.once(_labels)
    if not len(lanes.compute_rows) or not len(labels.rows):
        return FsdpGathers.empty()
    communication, enclosing, needed_ns = (
        lanes.communication_events,
        recorded.once(_enclosing),
        recorded.once(_needed_ns),
    )
    which = np.flatnonzero((needed_ns != ABSENT) & complete_steps(lanes, recorded.steps).counted)
    if not len(which):
        return FsdpGathers.empty()
    # A module with parameters of several types is gathered by several collectives: compute waits for the last.
    by_label = np.lexsort((communication.end_ns[which], enclosing[which]))
    last = np.append(enclosing[which][by_label][1:] != enclosing[which][by_label][:-1], True)
    first = np.insert(last[:-1], 0, True)
    start_ns = np.minimum.reduceat(communication.start_ns[which][by_label], np.flatnonzero(first))
    size_bytes = np.add.reduceat(communication.size_bytes[which][by_label], np.flatnonzero(first))
    unknown = np.logical_or.reduceat(communication.size_bytes[which][by_label] == ABSENT, np.flatnonzero(first))
    size_bytes[unknown] = ABSENT
    gathers = which[by_label][last]
    order = np.argsort(needed_ns[gathers], kind="stable")
    gathers, start_ns, size_bytes = gathers[order], start_ns[order], size_bytes[order]
    end_ns, step = communication.end_ns[gathers], lanes.windows.step[lanes.window[gathers]]
    if lanes.device == "gpu":
        ready_ns, begin_ns = _compute_that_waits(trace, lanes, needed_ns[gathers])
        wait_ns = np.maximum(np.minimum(end_ns, begin_ns) - ready_ns, 0)
    else:
        ready_ns, begin_ns = start_ns, end_ns
        wait_ns = end_ns - start_ns - lanes.compute.covered_ns(start_ns, end_ns)
    followed = np.append(step[1:] == step[:-1], False)
    last_ns = np.maximum(lanes.windows.end_ns[lanes.window[gathers]], begin_ns)
    next_ready_ns = np.where(followed, np.maximum(np.append(ready_ns[1:], 0), begin_ns), last_ns)
    next_begin_ns = np.where(followed, np.append(begin_ns[1:], 0), last_ns)
    busy_ns, done_ns = _other_work(trace, lanes, gathers, begin_ns, next_begin_ns)
    return FsdpGathers(
        step=step,
        module=np.array([labels.at(trace.events, row).module for row in enclosing[gathers].tolist()], dtype=object),
        phase=recorded.phases.at(needed_ns[gathers]).astype(np.int32),
        ahead=_modules_ahead(lanes, labels.issued_ns(enclosing, communication)[gathers], needed_ns[gathers]),
        size_bytes=size_bytes,
        transfer_ns=end_ns - start_ns,
        wait_ns=wait_ns,
        span_ns=np.where(followed, next_ready_ns - begin_ns, ABSENT),
        compute_ns=lanes.compute.covered_ns(begin_ns, next_ready_ns),
        busy_ns=busy_ns,
        drain_ns=np.where(followed, ABSENT, np.maximum(done_ns - begin_ns, 0)),
    )


def _modules_ahead(lanes: Lanes, issued_ns: Int64, needed_ns: Int64) -> Int64:
    """Return of how many modules compute was launched between issue and use: int64 [n].

    `needed_ns`: int64 [n], sorted.
    """
    device = lanes.device_events
    launch_ns = np.sort(device.launch_ns[lanes.computes])
    # An all-gather that is issued when it is needed is for the module itself.
    following = np.minimum(np.searchsorted(needed_ns, issued_ns, side="right"), np.arange(len(needed_ns)))
    launched = np.searchsorted(launch_ns, issued_ns) < np.searchsorted(launch_ns, needed_ns[following])
    return np.arange(len(needed_ns)) - following + launched


def _other_work(
    trace: DecodedTrace, lanes: Lanes, gathers: Int64, begin_ns: Int64, end_ns: Int64
) -> tuple[Int64, Int64]:
    """Return how long the stream of each of `gathers` does other work in a window, and when that ends.

    begin_ns, end_ns: int64 [n], the windows. The end is that of the last work that begins in the window.
    """
    communication, stream = lanes.communication_events, trace.events.track[lanes.communication_events.row]
    busy_ns, done_ns = np.zeros(len(gathers), dtype=np.int64), begin_ns.copy()
    for track in np.unique(stream[gathers]):
        other = np.flatnonzero((stream == track) & (communication.kind != KINDS.index("all_gather")))
        here = stream[gathers] == track
        others = Intervals.union_of(communication.start_ns[other], communication.end_ns[other])
        busy_ns[here] = others.covered_ns(begin_ns[here], end_ns[here])
        index = np.searchsorted(others.start_ns, end_ns[here], side="left") - 1
        last_ns = others.end_ns[np.maximum(index, 0)] if len(others) else begin_ns[here]
        done_ns[here] = np.where(index >= 0, last_ns, begin_ns[here])
    return busy_ns, done_ns


def _compute_that_waits(trace: DecodedTrace, lanes: Lanes, needed_ns: Int64) -> tuple[Int64, Int64]:
    """Return when the first compute kernel launched at or after each moment could have begun, and when it did.

    It could have begun when it was launched and the work before it on its stream was done. After the last kernel both
    are its end. int64 [n] each.
    """
    events, device = trace.events, lanes.device_events
    compute = lanes.computes
    order = np.argsort(device.launch_ns[compute], kind="stable")
    row, launch_ns = device.row[compute][order], device.launch_ns[compute][order]
    # FSDP copies gathered parameters on a separate stream: that is compute, too, but not what waits.
    ready_ns = launch_ns.copy()
    for stream in events.tracks_of(row):
        on_stream = np.flatnonzero(events.track[row] == stream)
        reach_ns = np.maximum.accumulate(events.end_ns[row[on_stream]])
        ready_ns[on_stream[1:]] = np.maximum(launch_ns[on_stream[1:]], reach_ns[:-1])
    index = np.searchsorted(launch_ns, needed_ns, side="left")
    there, at = index < len(row), np.minimum(index, len(row) - 1)
    begin_ns = np.where(there, events.start_ns[row[at]], events.end_ns[row[-1]])
    return np.minimum(np.where(there, ready_ns[at], begin_ns), begin_ns), begin_ns


def fsdp_regathers(recorded: RecordedSteps) -> FsdpRegathers:
    """Return the all-gathers that bring back parameters in a backward pass that FSDP freed after the forward pass.

    FSDP1 and FSDP2 have a setting that keeps the parameters. ZeRO has none, so its gathers are left out.
    """
    communication = recorded.lanes.communication_events
    gathers = communication.kind == KINDS.index("all_gather")
    if not gathers.any() or {"fsdp1", "fsdp2"}.isdisjoint(strategies_of(recorded.trace)[0]):
        return FsdpRegathers.empty()
    labelled = recorded.once(_enclosing) != ABSENT
    again = gathers & labelled & (recorded.phases.at(communication.launch_ns) == PHASES.index("backward"))
    return FsdpRegathers(launch_ns=np.sort(communication.launch_ns[again]))
