"""Which module FSDP communicates for: all-gathers of parameters, reductions of gradients, by module and phase.

Per rank (in a worker): a trace and its lanes to `FsdpSum` rows. Over ranks: `fsdp(run)` to tables.

A collective belongs to the module that the innermost FSDP label around its launch names: the one whose parameters it
gathers, though an earlier one may have asked for it. FSDP2 writes such labels itself, for FSDP1 the capture does. What
else runs in the groups that FSDP uses has a row without a module, so that nothing is lost. Time that several
collectives of a kind share counts for the first of them: over the modules it adds up to the exposed time of the kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracekit import schema
from tracekit.analysis.communication.communication_sums import (
    StepShare,
    layers_alike,
    means_over_ranks,
    merge_sums,
    step_share,
    sum_of_sizes,
)
from tracekit.analysis.events.groups import key_of_recorded_group
from tracekit.analysis.events.phases import PHASES, PhaseTimeline
from tracekit.analysis.fsdp.per_rank.labels import fsdp_labels
from tracekit.analysis.fsdp.prefetch import prefetch_findings, prefetch_forecasts
from tracekit.analysis.fsdp.wrapping import wrapping_findings
from tracekit.analysis.timeline.lanes import Lanes, complete_steps
from tracekit.model.communication import KINDS, CommunicationEvents
from tracekit.model.events import ABSENT, Bool, DecodedTrace, Int64
from tracekit.model.intervals import Intervals, beyond_earlier
from tracekit.model.metadata import CaptureMetadata
from tracekit.model.run import Finding, Run
from tracekit.model.summary import FsdpSum, StepParts

__all__ = ["Fsdp", "fsdp", "fsdp_sums", "merge_fsdp_sums"]

_BLOCKING = 0.02  # hidden, of what blocks: the ends of operators
_NOT_COLLECTIVE = np.array([KINDS.index(kind) for kind in ("send", "recv", "send_recv")])


@dataclass(frozen=True, kw_only=True)
class Fsdp:
    """`units`: columns of schema.FSDP, over the complete steps of each rank. `by_module`: columns of
    schema.FSDP_BY_MODULE, and `by_layer`: of schema.FSDP_BY_LAYER, most exposed first. `prefetching`: columns of
    schema.FSDP_PREFETCH, what it would hide. All empty when nothing is sharded; `remark`: why something of this is not
    known, or empty.
    """

    units: schema.Frame = schema.Frame(schema.FSDP)
    by_module: schema.Frame = schema.Frame(schema.FSDP_BY_MODULE)
    by_layer: schema.Frame = schema.Frame(schema.FSDP_BY_LAYER)
    prefetching: schema.Frame = schema.Frame(schema.FSDP_PREFETCH)
    findings: tuple[Finding, ...]
    remark: str


def fsdp_sums(trace: DecodedTrace, lanes: Lanes, phases: PhaseTimeline, steps: Sequence[StepParts]) -> list[FsdpSum]:
    """Rows by (module, kind, phase): times clipped to the complete steps among `steps`, counts by launch."""
    events, found = trace.events, lanes.communication_events
    labels = fsdp_labels(events)
    enclosing = labels.around(events, found)
    groups = np.union1d(found.group[enclosing != ABSENT], _shard_groups(trace.header.metadata, found))
    in_scope: Bool = (enclosing != ABSENT) | (
        np.isin(found.group, groups[groups != ABSENT]) & ~np.isin(found.kind, _NOT_COLLECTIVE)
    )
    if not in_scope.any():
        return []
    complete = complete_steps(lanes, steps)
    start_ns, end_ns = _own_share(found, in_scope)
    needed_ns = labels.needed_ns(events, enclosing, found)
    ahead_ns = np.where(needed_ns == ABSENT, ABSENT, needed_ns - labels.issued_ns(enclosing, found))
    phase = phases.at(found.launch_ns)
    module = [labels.at(events, row).module if row != ABSENT else None for row in enclosing.tolist()]
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
                shards=_members(found, own),
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
            "shard_bytes": _shard_bytes(row),
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
    by_module, forecasts = _by_module(run), prefetch_forecasts(run)
    return Fsdp(
        units=rows,
        by_module=by_module,
        by_layer=_by_layer(by_module),
        prefetching=[vars(forecast) for forecast in forecasts],
        # In other units other modules would wait: what prefetching does then is not known.
        findings=tuple(wrapping_findings(run, forecasts) or prefetch_findings(run, forecasts)),
        remark=_remark(run),
    )


def _remark(run: Run) -> str:
    """That modules have no names, or that all-gathers block their rank, so that nothing they do can be hidden."""
    rows = [row for summary in run.ranks for row in summary.fsdp]
    if rows and "fsdp1" in run.strategies and all(row.module is None for row in rows):
        return "FSDP1 does not name its modules in a trace; recorded with tracekit they have names"
    gathers = [row for summary in run.ranks for row in summary.communication if row.kind == "all_gather"]
    total_ns = sum(row.total_ns for row in gathers)
    hidden_ns = total_ns - sum(row.exposed_ns for row in gathers)
    if run.device != "cpu" or not total_ns or hidden_ns > _BLOCKING * total_ns:
        return ""
    if not {"fsdp1", "fsdp2"} & set(run.strategies):
        return ""
    return (
        f"all-gathers block their rank here, as FSDP's do on CPUs ({hidden_ns / total_ns:.0%} of their time hides): "
        "prefetching would hide nothing"
    )


def _by_module(run: Run) -> list[dict[str, Any]]:
    shares: dict[tuple[str | None, str, str | None], list[StepShare]] = defaultdict(list)
    ahead: dict[tuple[str | None, str, str | None], list[FsdpSum]] = defaultdict(list)
    for summary in run.ranks:
        steps = sum(step.complete for step in summary.steps)
        for row in summary.fsdp:
            shares[row.module, row.kind, row.phase].append(step_share(summary.rank, steps, [row]))
            ahead[row.module, row.kind, row.phase].append(row)
    rows: list[dict[str, Any]] = []
    for (module, kind, phase), ranks in shares.items():
        known = sum(row.ahead_count for row in ahead[module, kind, phase])
        ahead_ns = sum(row.ahead_ns for row in ahead[module, kind, phase])
        means = {**means_over_ranks(ranks), "prefetch_ns": ahead_ns / known if known else None}
        rows.append({"module": module, "phase": phase, "kind": kind, **means})
    # Sorting is stable: rows of equal exposure stay in the order in which the first rank came to them.
    return sorted(rows, key=lambda row: -row["exposed_ns"])


def _by_layer(by_module: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Its prefetch time is the mean over the modules."""
    rows = layers_alike(by_module, ("kind", "phase"), ("count", "size_bytes", "exposed_ns", "prefetch_ns"))
    ahead_ns = [None if row["prefetch_ns"] is None else row["prefetch_ns"] / row["modules"] for row in rows]
    return [row | {"prefetch_ns": mean_ns} for row, mean_ns in zip(rows, ahead_ns, strict=True)]


def _members(found: CommunicationEvents, which: Int64) -> int | None:
    """How many ranks these collectives are among; None where that is not known, or differs."""
    groups = np.unique(found.group[which]).tolist()
    members = {len(found.groups[group].ranks) if group != ABSENT else 0 for group in groups}
    return (members.pop() or None) if len(members) == 1 else None


def _shard_bytes(row: FsdpSum) -> int | None:
    """What this rank contributes to each all-gather, or is left with after each reduce-scatter."""
    if row.kind not in {"all_gather", "reduce_scatter"} or row.size_bytes is None or not row.shards or not row.count:
        return None
    return row.size_bytes // (row.count * row.shards)


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
        start_ns[own], end_ns[own] = beyond_earlier(start_ns[own], end_ns[own])
    return start_ns, end_ns
