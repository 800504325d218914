"""Which module FSDP communicates for: all-gathers of parameters, reductions of gradients, by module and phase.

Per rank (in a worker): a trace and its lanes to `FsdpSum` rows. Over ranks: `fsdp(run)` to tables.

A collective belongs to the module that the innermost FSDP label around its launch names: the one whose parameters it
gathers, though an earlier one may have asked for it. FSDP2 writes such labels itself, for FSDP1 the capture does. What
else runs in the groups that FSDP uses has a row without a module, so that nothing is lost. Time that several
collectives of a kind share counts for the first of them: over the modules it adds up to the exposed time of the kind.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tracekit import schema
from tracekit.analysis.communication_sums import StepShare, means_over_ranks, merge_sums, step_share, sum_of_sizes
from tracekit.analysis.enclosing import innermost_span
from tracekit.analysis.groups import key_of_recorded_group
from tracekit.analysis.lanes import Lanes, complete_steps
from tracekit.analysis.phases import PHASES, PhaseTimeline
from tracekit.model.communication import KINDS, CommunicationEvents
from tracekit.model.events import ABSENT, Bool, DecodedTrace, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.metadata import CaptureMetadata
from tracekit.model.module_names import clean_module_name
from tracekit.model.run import Run
from tracekit.model.spans import parse_fsdp_span
from tracekit.model.summary import FsdpSum, StepParts

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Fsdp", "fsdp", "fsdp_sums", "merge_fsdp_sums"]

# `FSDP::all_gather (blocks.0) [pg=2]`; the outermost module has no name
_FSDP2_LABEL = re.compile(r"FSDP::(\w+)(?: for .*)?(?: \((.*)\))?(?: \[pg=\d+\])?")
_FSDP2_ACTIONS: dict[str, _Action] = {
    "all_gather": "gather",
    "all_gather_copy_out": "use",
    "post_backward_reduce": "reduce",
}
_FSDP1_ACTIONS: dict[str, _Action] = {
    "unshard": "gather_and_use",
    "prefetch": "gather",
    "use": "use",
    "reduce": "reduce",
}
_FSDP1_OWN_LABEL = "FullyShardedDataParallel._"  # around its own work, as `FullyShardedDataParallel.forward` is not
_NOT_COLLECTIVE = np.array([KINDS.index(kind) for kind in ("send", "recv", "send_recv")])

_Action = Literal["gather", "gather_and_use", "use", "reduce", "other"]


@dataclass(frozen=True, kw_only=True)
class Fsdp:
    """`units`: columns of schema.FSDP, over the complete steps of each rank. `by_module`: columns of
    schema.FSDP_BY_MODULE, most exposed first. Both empty when nothing is sharded.
    """

    units: pd.DataFrame
    by_module: pd.DataFrame


@dataclass(frozen=True, kw_only=True)
class _Label:
    action: _Action
    module: str | None


def fsdp_sums(trace: DecodedTrace, lanes: Lanes, phases: PhaseTimeline, steps: Sequence[StepParts]) -> list[FsdpSum]:
    """Rows by (module, kind, phase): times clipped to the complete steps among `steps`, counts by launch."""
    events, found = trace.events, lanes.communication_events
    labels = _labels(events)
    rows = events.each_once(np.isin(events.name, list(labels)) & ~events.in_category("gpu_user_annotation"))
    action = np.array([labels[name].action for name in events.name[rows].tolist()], dtype=object)
    enclosing = innermost_span(events, rows[action != "use"], found.launch_track.astype(np.int64), found.launch_ns)
    groups = np.union1d(found.group[enclosing != ABSENT], _shard_groups(trace.header.metadata, found))
    in_scope: Bool = (enclosing != ABSENT) | (
        np.isin(found.group, groups[groups != ABSENT]) & ~np.isin(found.kind, _NOT_COLLECTIVE)
    )
    if not in_scope.any():
        return []
    complete = complete_steps(lanes, steps)
    start_ns, end_ns = _own_share(found, in_scope)
    ahead_ns = _time_ahead(events, labels, rows, enclosing, found)
    phase = phases.at(found.launch_ns)
    module = [labels[int(events.name[row])].module if row != ABSENT else None for row in enclosing.tolist()]
    unit_bytes = _unit_bytes(trace.header.metadata)
    members: dict[tuple[str | None, int, int], list[int]] = defaultdict(list)
    for i in np.flatnonzero(in_scope).tolist():
        members[module[i], int(found.kind[i]), int(phase[i])].append(i)
    result = []
    for (name, kind, phase_index), positions in members.items():
        own = np.array(positions, dtype=np.int64)
        here = own[complete.counted[own]]
        time = Intervals.union_of(start_ns[own], end_ns[own]) & complete.time
        if not len(here) and not len(time):
            continue
        known = ahead_ns[here] != ABSENT
        result.append(
            FsdpSum(
                module=name,
                unit_bytes=None if name is None else unit_bytes.get(name),
                phase=PHASES[phase_index] if phase_index >= 0 else None,
                kind=KINDS[kind],
                count=len(here),
                size_bytes=sum_of_sizes(found.size_bytes[here]),
                exposed_ns=(time - lanes.compute).len_ns,
                ahead_count=int(known.sum()),
                ahead_ns=int(ahead_ns[here][known].sum()),
            )
        )
    return result


def merge_fsdp_sums(rows: Sequence[FsdpSum]) -> tuple[FsdpSum, ...]:
    """Those of several recordings of one rank."""
    amounts = ("count", "size_bytes", "exposed_ns", "ahead_count", "ahead_ns")
    return merge_sums(rows, lambda row: (row.module, row.kind, row.phase), amounts)


def fsdp(run: Run) -> Fsdp:
    """The tables over all ranks."""
    rows = [
        {
            "rank": summary.rank,
            "module": row.module,
            "unit_bytes": row.unit_bytes,
            "phase": row.phase,
            "kind": row.kind,
            "count": row.count,
            "size_bytes": row.size_bytes,
            "exposed_ns": row.exposed_ns,
            "prefetch_ns": row.ahead_ns // row.ahead_count if row.ahead_count else None,
        }
        for summary in run.ranks
        for row in summary.fsdp
    ]
    return Fsdp(units=schema.FSDP.frame(rows), by_module=schema.FSDP_BY_MODULE.frame(_by_module(run)))


def _by_module(run: Run) -> list[dict[str, object]]:
    shares: dict[tuple[str | None, str, str | None], list[StepShare]] = defaultdict(list)
    ahead: dict[tuple[str | None, str, str | None], list[FsdpSum]] = defaultdict(list)
    for summary in run.ranks:
        steps = sum(step.complete for step in summary.steps)
        for row in summary.fsdp:
            shares[row.module, row.kind, row.phase].append(step_share(summary.rank, steps, [row]))
            ahead[row.module, row.kind, row.phase].append(row)
    rows = []
    for (module, kind, phase), ranks in shares.items():
        known = sum(row.ahead_count for row in ahead[module, kind, phase])
        ahead_ns = sum(row.ahead_ns for row in ahead[module, kind, phase])
        means = {**means_over_ranks(ranks), "prefetch_ns": ahead_ns / known if known else None}
        rows.append({"module": module, "phase": phase, "kind": kind, **means})
    # Sorting is stable: rows of equal exposure stay in the order in which the first rank came to them.
    return sorted(rows, key=lambda row: -row["exposed_ns"])


def _labels(events: EventTable) -> dict[int, _Label]:
    """The labels of the trace by the index of their text."""
    found: dict[int, _Label] = {}
    for i, text in enumerate(events.strings):
        if text.startswith("FSDP::") and (match := _FSDP2_LABEL.fullmatch(text)) is not None:
            action = _FSDP2_ACTIONS.get(match[1], "other")
            found[i] = _Label(action=action, module=None if action == "other" else clean_module_name(match[2] or ""))
        elif text.startswith(_FSDP1_OWN_LABEL):
            found[i] = _Label(action="other", module=None)
        elif (span := parse_fsdp_span(text)) is not None:
            found[i] = _Label(action=_FSDP1_ACTIONS[span.action], module=span.module)
    return found


def _shard_groups(metadata: CaptureMetadata | None, found: CommunicationEvents) -> Int64:
    """Indexes into `found.groups` of the groups that the capture says modules are sharded over."""
    if metadata is None:
        return np.empty(0, dtype=np.int64)
    ids = {unit.shard_group for unit in metadata.fsdp}
    keys = {key_of_recorded_group(group, metadata) for group in metadata.groups if group.id in ids}
    return np.array([i for i, key in enumerate(found.groups) if key in keys], dtype=np.int64)


def _unit_bytes(metadata: CaptureMetadata | None) -> dict[str, int]:
    """Unsharded bytes of each module's parameters; those of a module may be sharded over several groups."""
    size_bytes: dict[str, int] = defaultdict(int)
    for unit in metadata.fsdp if metadata is not None else ():
        size_bytes[unit.module] += unit.unit_bytes
    return size_bytes


def _own_share(found: CommunicationEvents, in_scope: Bool) -> tuple[Int64, Int64]:
    """Begin and end, int64 [n], of the part of each event that no earlier one of its kind in scope has covered."""
    start_ns, end_ns = found.start_ns.copy(), found.end_ns.copy()
    for kind in np.unique(found.kind[in_scope]):
        own = np.flatnonzero(in_scope & (found.kind == kind))
        own = own[np.argsort(start_ns[own], kind="stable")]
        reach_ns = np.maximum.accumulate(end_ns[own])
        start_ns[own[1:]] = np.maximum(start_ns[own[1:]], reach_ns[:-1])
    return start_ns, np.maximum(end_ns, start_ns)


def _time_ahead(
    events: EventTable, labels: dict[int, _Label], rows: Int64, enclosing: Int64, found: CommunicationEvents
) -> Int64:
    """int64 [n]: of each all-gather the host time from its issue to the moment its module's parameters are needed, or
    ABSENT: for other kinds, and where that moment is not in the trace or another all-gather of the module comes first.
    """
    ahead_ns = np.full(len(found), ABSENT, dtype=np.int64)
    uses: dict[str | None, list[int]] = defaultdict(list)
    for row in rows.tolist():
        if labels[int(events.name[row])].action == "use":
            uses[labels[int(events.name[row])].module].append(int(events.start_ns[row]))
    gathers: dict[int, list[int]] = defaultdict(list)
    for i in np.flatnonzero((enclosing != ABSENT) & (found.kind == KINDS.index("all_gather"))).tolist():
        gathers[int(enclosing[i])].append(i)
    next_issue_ns: dict[str | None, int] = {}
    for row in sorted(gathers, key=lambda row: -int(events.start_ns[row])):
        label = labels[int(events.name[row])]
        issue_ns = int(found.launch_ns[gathers[row]].min())
        if label.action == "gather_and_use":
            ahead_ns[gathers[row]] = int(events.end_ns[row]) - issue_ns
        elif label.action == "gather":
            moments = uses[label.module]
            place = bisect_left(moments, issue_ns)
            if place < len(moments) and moments[place] <= next_issue_ns.get(label.module, moments[place]):
                ahead_ns[gathers[row]] = moments[place] - issue_ns
        next_issue_ns[label.module] = issue_ns
    return ahead_ns
