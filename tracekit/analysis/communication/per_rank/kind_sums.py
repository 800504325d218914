"""One rank's communication by group, kind and phase, and by group alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracekit.analysis.communication.tables import CommunicationSum, GroupTime
from tracekit.analysis.events.phases import PHASES, PhaseTimeline
from tracekit.analysis.timeline.lanes import Lanes, complete_steps
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT
from tracekit.model.intervals import Intervals
from tracekit.model.summary import StepParts

_MESSAGES = tuple(KINDS.index(kind) for kind in ("send", "recv", "send_recv"))

__all__ = ["communication_sums", "group_times"]


def communication_sums(lanes: Lanes, phases: PhaseTimeline, steps: Sequence[StepParts]) -> list[CommunicationSum]:
    """Return rows by (group, kind, phase): times within the complete steps among `steps`, counts by launch.

    A collective that ran as several spans (a reduce-scatter of a list, on Gloo) counts once, with its size. Its time is
    the union of its spans.
    """
    communication, complete = lanes.communication_events, complete_steps(lanes, steps)
    phase = phases.at(communication.launch_ns)
    keys = np.stack((communication.group, communication.kind, phase)).astype(np.int64)
    order = np.lexsort(keys[::-1])
    ordered = keys[:, order]
    begins = np.flatnonzero((ordered[:, 1:] != ordered[:, :-1]).any(axis=0)) + 1
    rows = []
    for here in np.split(order, begins):
        if not len(here):
            continue
        group, kind, phase_index = keys[:, here[0]].tolist()
        time = Intervals.union_of(communication.start_ns[here], communication.end_ns[here]) & complete.time
        counted = here[complete.counted[here]]
        count = len(counted)
        if not count and not len(time):
            continue
        rows.append(
            CommunicationSum(
                group=communication.groups[group] if group != ABSENT else None,
                kind=KINDS[kind],
                phase=PHASES[phase_index] if phase_index >= 0 else None,
                count=count,
                size_bytes=communication.total_size_bytes(counted),
                total_ns=time.len_ns,
                exposed_ns=int(complete.exposed_ns[here].sum()),
            )
        )
    return rows


def group_times(lanes: Lanes, steps: Sequence[StepParts]) -> list[GroupTime]:
    """Return rows by group, of collectives and of messages: times within the complete steps among `steps`."""
    communication, complete = lanes.communication_events, complete_steps(lanes, steps)
    keys = 2 * communication.group.astype(np.int64) + np.isin(communication.kind, _MESSAGES)
    rows = []
    for key in np.unique(keys).tolist():
        here = np.flatnonzero(keys == key)
        time = Intervals.union_of(communication.start_ns[here], communication.end_ns[here]) & complete.time
        if len(time):
            rows.append(
                GroupTime(
                    group=None if key < 0 else communication.groups[key // 2],
                    messages=bool(key % 2),
                    total_ns=time.len_ns,
                    exposed_ns=int(complete.exposed_ns[here].sum()),
                )
            )
    return rows
