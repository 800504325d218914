"""Which module one rank's collectives of tensor, expert and context parallelism are for, and how long modules took.

Every collective of a tp, ep or cp group is in a row. Where its module is not known, the row has no name, so that
nothing is lost. Without the capture's metadata, what DTensor redistributes counts as tensor parallelism, marked as
inferred.

The time of a module contains what is inside it. Forward, it is the time of the module's spans on the host; backward,
the time of the autograd nodes that they made. On a GPU rank it is the time of the device on what was launched there,
from the first start to the last end.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from tracekit.analysis.events.innermost_span import innermost_span
from tracekit.analysis.events.kernel_launches import device_extent
from tracekit.analysis.events.modules import HostStretches, modules_of_launches, stretches_of_modules
from tracekit.analysis.events.phases import PHASES, PhaseTimeline
from tracekit.analysis.model_parallel.tables import TensorSum
from tracekit.analysis.timeline.lanes import Lanes, complete_steps
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, DecodedTrace, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.summary import StepParts

__all__ = ["tensor_sums"]

_WITHIN_LAYERS = ("tp", "ep", "cp")
_NONE = -1
_DTENSOR = re.compile(r"(?:(?:Nested)?Redistribute|_FromTorchTensor|_ToTorchTensor)(?:Backward)?")


def tensor_sums(
    trace: DecodedTrace, lanes: Lanes, phases: PhaseTimeline, steps: Sequence[StepParts]
) -> list[TensorSum]:
    """Return rows by (module, parallelism, kind, phase): times within the complete steps, counts by launch."""
    communication = lanes.communication_events
    use, inferred = _parallelism(trace, lanes)
    in_scope = np.flatnonzero(use != _NONE)
    if not len(in_scope):
        return []
    complete = complete_steps(lanes, steps)
    module = modules_of_launches(
        trace.events, communication.launch_track[in_scope].astype(np.int64), communication.launch_ns[in_scope]
    )
    layers = layer_times(trace.events, lanes, phases, {name for name in module if name is not None})
    phase = phases.at(communication.launch_ns)
    members: dict[tuple[str | None, int, int, int], list[int]] = defaultdict(list)
    for name, i in zip(module, in_scope.tolist(), strict=True):
        members[name, int(use[i]), int(communication.kind[i]), int(phase[i])].append(i)
    result = []
    for (name, parallelism, kind, phase_index), positions in members.items():
        of_row = np.array(positions, dtype=np.int64)
        here = of_row[complete.counted[of_row]]
        time = Intervals.union_of(communication.start_ns[of_row], communication.end_ns[of_row]) & complete.time
        layer = layers.get((name, phase_index))
        if not len(here) and not len(time):
            continue
        result.append(
            TensorSum(
                module=name,
                parallelism=_WITHIN_LAYERS[parallelism],
                phase=PHASES[phase_index] if phase_index >= 0 else None,
                kind=KINDS[kind],
                count=len(here),
                size_bytes=communication.total_size_bytes(here),
                exposed_ns=int(complete.exposed_ns[of_row].sum()),
                layer_ns=None if layer is None else (time | (layer & complete.time)).len_ns,
                inferred=inferred,
            )
        )
    return result


def _parallelism(trace: DecodedTrace, lanes: Lanes) -> tuple[Int64, bool]:
    """Return for each communication event the index of its parallelism in `_WITHIN_LAYERS`, or -1: int64 [n].

    And whether that is inferred.
    """
    communication, events = lanes.communication_events, trace.events
    of_group = [
        _WITHIN_LAYERS.index(g.parallelism) if g.parallelism in _WITHIN_LAYERS else _NONE for g in communication.groups
    ]
    use = np.array([*of_group, _NONE], dtype=np.int64)[communication.group]
    if trace.header.metadata is not None or (use != _NONE).any():
        return use, False
    # Outside of the autograd graph, FSDP2 uses DTensor as well: for norms of gradients, for instance.
    in_graph = events.named(lambda name: _DTENSOR.fullmatch(name) is not None) & (events.sequence_number != ABSENT)
    spans = events.each_once(in_graph)
    around = innermost_span(events, spans, communication.launch_track.astype(np.int64), communication.launch_ns)
    return np.where(around != ABSENT, _WITHIN_LAYERS.index("tp"), _NONE), True


def layer_times(
    events: EventTable, lanes: Lanes, phases: PhaseTimeline, names: Iterable[str]
) -> dict[tuple[str | None, int], Intervals]:
    """Return when each module that has spans ran in each phase (index into `PHASES`)."""
    result: dict[tuple[str | None, int], Intervals] = {}
    for name, host in stretches_of_modules(events, sorted(names)).items():
        start_ns, end_ns = (host.start_ns, host.end_ns) if lanes.device == "cpu" else _on_device(events, lanes, host)
        phase = phases.at(host.start_ns)
        for index in np.unique(phase).tolist():
            result[name, index] = Intervals.union_of(start_ns[phase == index], end_ns[phase == index])
    return result


def _on_device(events: EventTable, lanes: Lanes, host: HostStretches) -> tuple[Int64, Int64]:
    """Return begin and end of what was launched in each stretch, int64 [k] each; equal where nothing was."""
    device = lanes.device_events
    linked = np.flatnonzero(device.launch_row != ABSENT)
    row, launch_ns = device.row[linked], device.launch_ns[linked]
    track = events.track[device.launch_row[linked]]
    start_ns, end_ns = (np.zeros(len(host.track), dtype=np.int64) for _ in range(2))
    for thread in np.unique(host.track):
        order = np.flatnonzero(track == thread)
        order = order[np.argsort(launch_ns[order], kind="stable")]
        on_thread = np.flatnonzero(host.track == thread)
        first, stop = (np.searchsorted(launch_ns[order], times[on_thread]) for times in (host.start_ns, host.end_ns))
        start_ns[on_thread], end_ns[on_thread] = device_extent(
            events, row[order], first, stop, start_ns[on_thread], end_ns[on_thread]
        )
    return start_ns, end_ns
