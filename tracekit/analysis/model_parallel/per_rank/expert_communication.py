"""How long one rank brings tokens to experts and takes them back, and how much of that compute hides.

Libraries for expert parallelism name their kernels (`events/default_rules.py`). Of all-to-alls the first of a pair is a
dispatch, and the one that takes the tokens back a combine (`expert_exchanges`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracekit.analysis.events.phases import PHASES, PhaseTimeline
from tracekit.analysis.model_parallel.per_rank.expert_exchanges import ExpertAllToAlls
from tracekit.analysis.model_parallel.tables import ExpertCommunicationSum
from tracekit.analysis.timeline.lanes import Lanes, complete_steps
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.spans import parse_pipeline_span, parse_torch_action
from tracekit.model.summary import StepParts

__all__ = ["expert_communication_sums"]

_DIRECTIONS = ("dispatch", "combine")


def expert_communication_sums(
    events: EventTable,
    lanes: Lanes,
    phases: PhaseTimeline,
    steps: Sequence[StepParts],
    all_to_alls: ExpertAllToAlls,
) -> list[ExpertCommunicationSum]:
    """Return rows by (group, direction, phase, microbatch): times within the complete steps among `steps`, counts by
    launch.
    """
    communication = lanes.communication_events
    group = communication.group.astype(np.int64)
    direction = np.full(len(communication), ABSENT, dtype=np.int64)
    for number, kind in enumerate(_DIRECTIONS):
        direction[communication.kind == KINDS.index(kind)] = number
    direction[all_to_alls.which] = all_to_alls.takes_back
    group[all_to_alls.which] = all_to_alls.group
    chosen = np.flatnonzero(direction != ABSENT)
    if not len(chosen):
        return []
    complete = complete_steps(lanes, steps)
    phase = phases.at(communication.launch_ns[chosen])
    microbatch = _microbatches(events, communication.launch_ns[chosen])
    keys = np.stack((group[chosen], direction[chosen], phase, microbatch))
    different, which = np.unique(keys, axis=1, return_inverse=True)
    rows = []
    for row, (of_group, number, of_phase, of_microbatch) in enumerate(different.T.tolist()):
        members = chosen[which.reshape(-1) == row]
        time = Intervals.union_of(communication.start_ns[members], communication.end_ns[members]) & complete.time
        counted = members[complete.counted[members]]
        if not len(counted) and not len(time):
            continue
        rows.append(
            ExpertCommunicationSum(
                group=None if of_group == ABSENT else communication.groups[of_group],
                direction=_DIRECTIONS[number],
                phase=PHASES[of_phase] if of_phase >= 0 else None,
                microbatch=None if of_microbatch == ABSENT else of_microbatch,
                count=len(counted),
                size_bytes=communication.total_size_bytes(counted),
                total_ns=time.len_ns,
                overlapped_ns=(time & lanes.compute).len_ns,
                exposed_ns=int(complete.exposed_ns[members].sum()),
            )
        )
    return rows


def _microbatches(events: EventTable, launch_ns: Int64) -> Int64:
    """Return int64 [n]: the microbatch of the pipeline's action during which each launch was, on any thread, or ABSENT.

    ABSENT as well for a launch during actions on several microbatches, which some schedules overlap.
    """
    of_name: dict[int, int] = {}
    for number, name in enumerate(events.strings):
        action = parse_pipeline_span(name) or parse_torch_action(name)
        if action is not None:
            of_name[number] = action.microbatch
    result = np.full(len(launch_ns), ABSENT, dtype=np.int64)
    found = np.zeros(len(launch_ns), dtype=np.int64)
    host = ~events.in_category("gpu_user_annotation")
    for microbatch in sorted(set(of_name.values())):
        names = [number for number, other in of_name.items() if other == microbatch]
        running = Intervals.of_events(events, host & np.isin(events.name, names)).covers(launch_ns)
        result[running] = microbatch
        found += running
    result[found > 1] = ABSENT
    return result
