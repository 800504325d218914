"""What all-to-alls of expert parallelism bring to one rank, how long they take, and how much of that compute hides.

An all-to-all that brings tokens to experts is followed by one that takes them back. The second receives what the first
has sent, and sends what it has received. Gradients go the same two ways. So the first of such a pair shows the load. An
exchange without a counterpart counts as well. How much each received follows from the shape of its output, or from
NCCL's arguments.

The purpose of a group may be unknown. Then it counts if tokens go there and back within a forward pass. Other
all-to-alls (of embedding tables, of sequences) come back as gradients only.

Of two all-to-alls the first is a dispatch, and the one that takes the tokens back a combine. Libraries for expert
parallelism name their kernels so (`rank/communication_rules.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.explain.model_parallel.tables import COUNT_DTYPES, ExpertCommunicationSum, ExpertExchangeSum
from tracekit.model.columnar import Columnar
from tracekit.model.communication import DTYPES, KINDS
from tracekit.model.events import ABSENT, Bool, DecodedTrace, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.spans import parse_pipeline_span, parse_torch_action
from tracekit.rank.communication_rules import bytes_per_element
from tracekit.rank.device_communication import argument_positions
from tracekit.rank.lanes import Lanes, complete_steps
from tracekit.rank.modules import modules_of_launches
from tracekit.rank.phases import PHASES, innermost_span
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.rank.shapes import recorded_shapes
from tracekit.stats.rows_by_key import rows_by_key

_OPERATORS = ("c10d::alltoall_base_", "c10d::alltoall_")  # output first, then input
_FOR_EXPERTS = ("ep", None)  # None: the purpose of the group is not known

_DIRECTIONS = ("dispatch", "combine")


@dataclass(frozen=True, kw_only=True, eq=False)
class ExpertAllToAlls(Columnar):
    """k all-to-alls that bring tokens to experts or take them back, in complete steps, in order of launch.

    Attributes:
        which: indexes of the communication events, int64 [k].
        group: index of the group, or ABSENT, int64 [k].
        received: how many elements the rank got, int64 [k].
        sent: how many it gave, int64 [k].
        takes_back: whether each takes back what an earlier one brought, bool [k].
    """

    which: Int64
    group: Int64
    received: Int64
    sent: Int64
    takes_back: Bool


def expert_exchanges(recorded: RecordedSteps) -> tuple[ExpertExchangeSum, ...]:
    """Return rows by (group, module, step), in order of time."""
    trace, lanes, found = recorded.trace, recorded.lanes, recorded.once(expert_all_to_alls)
    communication = lanes.communication_events
    if not len(found.which):
        return ()
    step = lanes.windows.step[lanes.window[found.which]]
    module = modules_of_launches(
        trace.events, communication.launch_track[found.which].astype(np.int64), communication.launch_ns[found.which]
    )
    start_ns, end_ns = communication.start_ns[found.which], communication.end_ns[found.which]
    uncovered_ns = end_ns - start_ns - lanes.compute.covered_ns(start_ns, end_ns)
    sums: dict[tuple[int, str | None, int], list[int]] = defaultdict(lambda: [0, 0])
    for i, position in enumerate(found.which.tolist()):
        width = bytes_per_element(DTYPES[communication.dtype[position]]) or 0
        total = sums[int(found.group[i]), module[i], int(step[i])]
        total[0] += 0 if found.takes_back[i] else int(found.received[i]) * width
        total[1] += int(uncovered_ns[i])
    return tuple(
        ExpertExchangeSum(
            group=None if group == ABSENT else communication.groups[group],
            module=name,
            step=number,
            received_bytes=size,
            uncovered_ns=time_ns,
        )
        for (group, name, number), (size, time_ns) in sums.items()
    )


def expert_all_to_alls(recorded: RecordedSteps) -> ExpertAllToAlls:
    """Return the all-to-alls for experts that were launched in the complete steps among those recorded."""
    trace, lanes = recorded.trace, recorded.lanes
    communication = lanes.communication_events
    group_of_event = _groups(trace, lanes)
    # Without metadata, Gloo's events do not name their group; the last entry is for those.
    unknown = trace.header.metadata is None
    may_be = np.array([*(group.parallelism in _FOR_EXPERTS for group in communication.groups), unknown], dtype=np.bool_)
    complete = complete_steps(lanes, recorded.steps)
    which = np.flatnonzero(
        (communication.kind == KINDS.index("all_to_all")) & complete.counted & may_be[group_of_event]
    )
    if not len(which):
        return ExpertAllToAlls.empty()
    which = which[np.argsort(communication.launch_ns[which], kind="stable")]
    received, sent = _exchanged_elements(trace, lanes, which)
    known = (
        (received != ABSENT)
        & (communication.dtype[which] != ABSENT)
        & ~np.isin(communication.dtype[which], COUNT_DTYPES)
    )
    which, received, sent = which[known], received[known], sent[known]
    group, step = group_of_event[which], lanes.windows.step[lanes.window[which]]
    keys = list(zip(group.tolist(), step.tolist(), strict=True))
    back = np.array(_takes_back(keys, received, sent), dtype=np.bool_)
    forward = recorded.phases.may_be_forward_at(communication.launch_ns[which])
    for_experts = {index for index, key in enumerate(communication.groups) if key.parallelism == "ep"}
    for_experts |= set(group[forward & back].tolist())
    chosen = np.isin(group, list(for_experts))
    found = ExpertAllToAlls(which=which, group=group, received=received, sent=sent, takes_back=back)
    return found.rows(chosen)


def _groups(trace: DecodedTrace, lanes: Lanes) -> Int64:
    """Return the index of each communication event's group, or ABSENT: int64 [n].

    Where the event does not tell and all groups of this rank that may be for experts have the same members, it is the
    first of these.
    """
    communication = lanes.communication_events
    group_of_event = communication.group.astype(np.int64)
    candidates = [i for i, key in enumerate(communication.groups) if key.parallelism == "ep"]
    candidates = candidates or [i for i, key in enumerate(communication.groups) if key.parallelism in _FOR_EXPERTS]
    if trace.header.metadata is None and len({communication.groups[i].ranks for i in candidates}) == 1:
        group_of_event[group_of_event == ABSENT] = candidates[0]
    return group_of_event


def _exchanged_elements(trace: DecodedTrace, lanes: Lanes, which: Int64) -> tuple[Int64, Int64]:
    """Return how many elements each of these all-to-alls received and sent, int64 [k] each; ABSENT where not known."""
    events, communication = trace.events, lanes.communication_events
    arguments, shapes = events.collective_arguments, recorded_shapes(events)
    operators = events.each_once(events.named(_OPERATORS.__contains__))
    operator = innermost_span(
        events, operators, communication.launch_track[which].astype(np.int64), communication.launch_ns[which]
    )
    received, sent = (np.full(len(which), ABSENT, dtype=np.int64) for _ in range(2))
    for i, position in enumerate(argument_positions(events, communication.row[which]).tolist()):
        recorded = shapes.get(int(operator[i]))
        if position != ABSENT:
            received[i], sent[i] = arguments.out_elements[position], arguments.in_elements[position]
        elif recorded is not None and len(recorded.elements_of_arguments) > 1:
            received[i], sent[i] = recorded.elements_of_arguments[:2]
    return received, sent


def _takes_back(keys: Sequence[tuple[int, int]], received: Int64, sent: Int64) -> list[bool]:
    """Return whether each exchange takes back what an earlier one brought in its group and step.

    Exchanges are in order of launch.
    """
    waiting: Counter[tuple[tuple[int, int], int, int]] = Counter()
    result = []
    for key, into, out in zip(keys, received.tolist(), sent.tolist(), strict=True):
        returns = waiting[key, out, into] > 0
        if returns:
            waiting[key, out, into] -= 1
        else:
            waiting[key, into, out] += 1
        result.append(returns)
    return result


def expert_communication_sums(recorded: RecordedSteps) -> tuple[ExpertCommunicationSum, ...]:
    """Return rows by (group, direction, phase, microbatch): times within the complete steps, counts by launch."""
    lanes, all_to_alls = recorded.lanes, recorded.once(expert_all_to_alls)
    communication = lanes.communication_events
    group = communication.group.astype(np.int64)
    direction = np.full(len(communication), ABSENT, dtype=np.int64)
    for number, kind in enumerate(_DIRECTIONS):
        direction[communication.kind == KINDS.index(kind)] = number
    direction[all_to_alls.which] = all_to_alls.takes_back
    group[all_to_alls.which] = all_to_alls.group
    chosen = np.flatnonzero(direction != ABSENT)
    if not len(chosen):
        return ()
    complete = complete_steps(lanes, recorded.steps)
    phase = recorded.phases.at(communication.launch_ns[chosen])
    microbatch = _microbatches(recorded.trace.events, communication.launch_ns[chosen])
    rows = []
    same = rows_by_key(group[chosen], direction[chosen], phase, microbatch)
    for (of_group, number, of_phase, of_microbatch), here in same.items():
        members = chosen[here]
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
    return tuple(rows)


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
