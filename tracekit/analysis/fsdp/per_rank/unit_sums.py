"""Which module one rank's FSDP collectives are for: all-gathers of parameters, reductions of gradients, by phase.

A collective belongs to the module that the innermost FSDP label around its launch names. That is the module whose
parameters it gathers, though an earlier module may have asked for it. FSDP2 writes such labels; for FSDP1 the capture
does. Other collectives in the groups of FSDP have a row without a module, so that none is lost.

The sum over modules is the exposed time of these collectives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tracekit.analysis.events.groups import key_of_recorded_group
from tracekit.analysis.events.phases import PHASES, PhaseTimeline
from tracekit.analysis.fsdp.parts import FsdpSum
from tracekit.analysis.fsdp.per_rank.labels import fsdp_labels
from tracekit.analysis.timeline.lanes import Lanes, complete_steps
from tracekit.model.communication import KINDS, CommunicationEvents
from tracekit.model.events import ABSENT, Bool, DecodedTrace, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.metadata import CaptureMetadata
from tracekit.model.summary import StepParts

__all__ = ["fsdp_sums"]

_NOT_COLLECTIVE = np.array([KINDS.index(kind) for kind in ("send", "recv", "send_recv")])


def fsdp_sums(trace: DecodedTrace, lanes: Lanes, phases: PhaseTimeline, steps: Sequence[StepParts]) -> list[FsdpSum]:
    """Return rows by (module, kind, phase): times within the complete steps among `steps`, counts by launch."""
    events, communication = trace.events, lanes.communication_events
    labels = fsdp_labels(events)
    enclosing = labels.around(events, communication)
    groups = np.union1d(communication.group[enclosing != ABSENT], _shard_groups(trace.header.metadata, communication))
    in_scope: Bool = (enclosing != ABSENT) | (
        np.isin(communication.group, groups[groups != ABSENT]) & ~np.isin(communication.kind, _NOT_COLLECTIVE)
    )
    if not in_scope.any():
        return []
    complete = complete_steps(lanes, steps)
    needed_ns = labels.needed_ns(events, enclosing, communication)
    ahead_ns = np.where(needed_ns == ABSENT, ABSENT, needed_ns - labels.issued_ns(enclosing, communication))
    phase = phases.at(communication.launch_ns)
    module = [labels.at(events, row).module if row != ABSENT else None for row in enclosing.tolist()]
    unit_bytes = _unit_bytes(trace.header.metadata)
    members: dict[tuple[str | None, int, int], list[int]] = defaultdict(list)
    for i in np.flatnonzero(in_scope).tolist():
        members[module[i], int(communication.kind[i]), int(phase[i])].append(i)
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
    return result


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


def _unit_bytes(metadata: CaptureMetadata | None) -> dict[str, int]:
    """Return the unsharded bytes of each module's parameters, which may be sharded over several groups."""
    size_bytes: dict[str, int] = defaultdict(int)
    for unit in metadata.fsdp if metadata is not None else ():
        size_bytes[unit.module] += unit.unit_bytes
    return size_bytes
