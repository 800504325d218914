"""What all-to-alls of expert parallelism bring to one rank.

An all-to-all that brings tokens to experts is followed by one that takes them back. The second receives what the first
has sent, and sends what it has received. Gradients go the same two ways. So the first of such a pair shows the load. An
exchange without a counterpart counts as well. How much each received follows from the shape of its output, or from
NCCL's arguments.

The purpose of a group may be unknown. Then it counts if tokens go there and back within a forward pass. Other
all-to-alls (of embedding tables, of sequences) come back as gradients only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from tracekit.analysis.events.communication_rules import bytes_per_element
from tracekit.analysis.events.innermost_span import innermost_span
from tracekit.analysis.events.modules import modules_of_launches
from tracekit.analysis.events.phases import PHASES, PhaseTimeline
from tracekit.analysis.events.shapes import recorded_shapes
from tracekit.analysis.model_parallel.parts import ExpertExchangeSum
from tracekit.analysis.timeline.device_communication import argument_positions
from tracekit.analysis.timeline.lanes import Lanes, complete_steps
from tracekit.model.communication import DTYPES, KINDS
from tracekit.model.events import ABSENT, DecodedTrace, Int64
from tracekit.model.summary import StepParts

__all__ = ["expert_exchanges"]

_OPERATORS = ("c10d::alltoall_base_", "c10d::alltoall_")  # output first, then input
_FOR_EXPERTS = ("ep", None)  # None: the purpose of the group is not known
_COUNTS = [DTYPES.index(name) for name in ("int32", "int64")]  # numbers of tokens, not tokens


def expert_exchanges(
    trace: DecodedTrace, lanes: Lanes, phases: PhaseTimeline, steps: Sequence[StepParts]
) -> list[ExpertExchangeSum]:
    """Return rows by (group, module, step) over the complete steps among `steps`, in order of time."""
    communication = lanes.communication_events
    group_of_event = _groups(trace, lanes)
    # Without metadata, Gloo's events do not name their group; the last entry is for those.
    unknown = trace.header.metadata is None
    may_be = np.array([*(group.parallelism in _FOR_EXPERTS for group in communication.groups), unknown], dtype=np.bool_)
    complete = complete_steps(lanes, steps)
    which = np.flatnonzero(
        (communication.kind == KINDS.index("all_to_all")) & complete.counted & may_be[group_of_event]
    )
    if not len(which):
        return []
    which = which[np.argsort(communication.launch_ns[which], kind="stable")]
    received, sent = _elements(trace, lanes, which)
    known = (
        (received != ABSENT) & (communication.dtype[which] != ABSENT) & ~np.isin(communication.dtype[which], _COUNTS)
    )
    which, received, sent = which[known], received[known], sent[known]
    step = lanes.windows.step[lanes.window[which]]
    module = modules_of_launches(
        trace.events, communication.launch_track[which].astype(np.int64), communication.launch_ns[which]
    )
    back = _takes_back(list(zip(group_of_event[which].tolist(), step.tolist(), strict=True)), received, sent)
    forward = phases.at(communication.launch_ns[which]) == PHASES.index("forward")
    for_experts = {index for index, group in enumerate(communication.groups) if group.parallelism == "ep"}
    for_experts |= set(group_of_event[which][forward & np.array(back, dtype=np.bool_)].tolist())
    exposed_ns = communication.end_ns[which] - communication.start_ns[which]
    exposed_ns = exposed_ns - lanes.compute.covered_ns(communication.start_ns[which], communication.end_ns[which])
    sums: dict[tuple[int, str | None, int], list[int]] = defaultdict(lambda: [0, 0])
    for i, position in enumerate(which.tolist()):
        if int(group_of_event[position]) not in for_experts:
            continue
        width = bytes_per_element(DTYPES[communication.dtype[position]]) or 0
        total = sums[int(group_of_event[position]), module[i], int(step[i])]
        total[0] += 0 if back[i] else int(received[i]) * width
        total[1] += int(exposed_ns[i])
    return [
        ExpertExchangeSum(
            group=None if group == ABSENT else communication.groups[group],
            module=name,
            step=number,
            received_bytes=size,
            exposed_ns=time_ns,
        )
        for (group, name, number), (size, time_ns) in sums.items()
    ]


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


def _elements(trace: DecodedTrace, lanes: Lanes, which: Int64) -> tuple[Int64, Int64]:
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


def _takes_back(places: Sequence[tuple[int, int]], received: Int64, sent: Int64) -> list[bool]:
    """Return whether each exchange takes back what an earlier one brought in its group and step.

    Exchanges are in order of launch.
    """
    waiting: Counter[tuple[tuple[int, int], int, int]] = Counter()
    result = []
    for place, into, out in zip(places, received.tolist(), sent.tolist(), strict=True):
        returns = waiting[place, out, into] > 0
        if returns:
            waiting[place, out, into] -= 1
        else:
            waiting[place, into, out] += 1
        result.append(returns)
    return result
