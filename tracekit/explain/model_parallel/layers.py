"""Which module tensor, expert and context parallelism communicate for, over all ranks.

Every collective of a tp, ep or cp group is in a row. Where its module is not known, the row has no name, so that
nothing is lost. Without the capture's metadata, what DTensor redistributes counts as tensor parallelism, marked as
inferred.

The time of a module contains what is inside it. Forward, it is the time of the module's spans on the host; backward,
the time of the autograd nodes that they made. On a GPU rank it is the time of the device on what was launched there,
from the first start to the last end.

Of experts there is also how long all ranks bring tokens to them and take them back, and how much of that compute hides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from tracekit.explain.communication.communication_sums import layers_alike, means_over_ranks, shares_by_key
from tracekit.explain.model_parallel import tables
from tracekit.explain.model_parallel.expert_load import ExpertLoad, expert_load
from tracekit.explain.model_parallel.tables import EXPERT_COMMUNICATION_SUMS, LAYERS, TensorSum
from tracekit.findings.finding import Finding
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, DecodedTrace, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.run import Run
from tracekit.model.table import Frame
from tracekit.rank.kernel_launches import device_extent
from tracekit.rank.lanes import Lanes, complete_steps
from tracekit.rank.modules import HostIntervals, intervals_of_modules, modules_of_launches
from tracekit.rank.phases import PHASES, PhaseTimeline, innermost_span
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.stats.grouped import grouped

_WITHIN_LAYERS = ("tp", "ep", "cp")
_NONE = -1
_DTENSOR = re.compile(r"(?:(?:Nested)?Redistribute|_FromTorchTensor|_ToTorchTensor)(?:Backward)?")

_Key = tuple[str, str | None, int | None]  # direction, phase, microbatch


@dataclass(frozen=True, kw_only=True)
class TensorParallel:
    """Communication within layers of all ranks; empty without groups of tp, ep or cp.

    Attributes:
        modules: rows of tables.TENSOR, sums over the complete steps of each rank.
        by_module: rows of tables.TENSOR_BY_MODULE, the most exposed first.
        by_layer: rows of tables.TENSOR_BY_LAYER, the most exposed first.
        findings: those on the load of experts.
    """

    modules: Frame = Frame(tables.TENSOR)
    by_module: Frame = Frame(tables.TENSOR_BY_MODULE)
    by_layer: Frame = Frame(tables.TENSOR_BY_LAYER)
    experts: ExpertLoad
    expert_communication: ExpertCommunication
    findings: tuple[Finding, ...]


def tensor_parallel(run: Run) -> TensorParallel:
    """Return the tables over all ranks."""
    rows = [
        tables.TENSOR.row(row, rank=summary.rank, layer_share=_share(row.exposed_ns, row.layer_ns))
        for summary in run.ranks
        for row in summary[LAYERS]
    ]
    by_module, experts = _by_module(run), expert_load(run)
    return TensorParallel(
        modules=rows,
        by_module=by_module,
        by_layer=_by_layer(by_module),
        experts=experts,
        expert_communication=expert_communication(run),
        findings=experts.findings,
    )


def _share(exposed_ns: float | None, layer_ns: float | None) -> float | None:
    return exposed_ns / layer_ns if layer_ns and exposed_ns is not None else None


def _by_module(run: Run) -> list[dict[str, Any]]:
    key = ("module", "parallelism", "kind", "phase")
    shares = shares_by_key(run, LAYERS, attrgetter(*key), ("count", "size_bytes", "exposed_ns", "layer_ns"))
    inferred = any(row.inferred for summary in run.ranks for row in summary[LAYERS])
    rows = []
    for key_values, of_ranks in shares.items():
        means = means_over_ranks(of_ranks)
        share = _share(means["exposed_ns"], means["layer_ns"])
        rows.append(dict(zip(key, key_values, strict=True)) | means | {"layer_share": share, "inferred": inferred})
    # Sorting is stable: rows of equal exposure keep the order of the first rank.
    return sorted(rows, key=lambda row: -row["exposed_ns"])


def _by_layer(by_module: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    same, amounts = ("parallelism", "kind", "phase", "inferred"), ("count", "size_bytes", "exposed_ns", "layer_ns")
    rows = layers_alike(by_module, same, amounts)
    return [row | {"layer_share": _share(row["exposed_ns"], row["layer_ns"])} for row in rows]


@dataclass(frozen=True, kw_only=True)
class ExpertCommunication:
    """Dispatches and combines of all ranks; empty without expert parallelism.

    Attributes:
        ranks: rows of tables.EXPERT_COMMUNICATION, sums over the complete steps of each rank.
        means: rows of tables.EXPERT_COMMUNICATION_MEANS, in the order of microbatches, phases and directions.
    """

    ranks: Frame = Frame(tables.EXPERT_COMMUNICATION)
    means: Frame = Frame(tables.EXPERT_COMMUNICATION_MEANS)


def expert_communication(run: Run) -> ExpertCommunication:
    """Return the tables over all ranks."""
    rows = [
        tables.EXPERT_COMMUNICATION.row(row, rank=summary.rank, group=run.index_of_group[row.group])
        for summary in run.ranks
        for row in summary[EXPERT_COMMUNICATION_SUMS]
    ]
    return ExpertCommunication(ranks=rows, means=_means(run))


def _means(run: Run) -> list[dict[str, Any]]:
    key, amounts = (
        ("direction", "phase", "microbatch"),
        ("count", "size_bytes", "total_ns", "overlapped_ns", "exposed_ns"),
    )
    shares = shares_by_key(run, EXPERT_COMMUNICATION_SUMS, attrgetter(*key), amounts)
    return [
        dict(zip(key, key_values, strict=True)) | means_over_ranks(shares[key_values])
        for key_values in sorted(shares, key=_order)
    ]


def _order(key: _Key) -> tuple[int, int, bool]:
    direction, phase, microbatch = key
    phase_index = PHASES.index(phase) if phase in PHASES else len(PHASES)
    return (-1 if microbatch is None else microbatch, phase_index, direction == "combine")


def tensor_sums(recorded: RecordedSteps) -> tuple[TensorSum, ...]:
    """Return rows by (module, parallelism, kind, phase): times within the complete steps, counts by launch."""
    trace, lanes, phases = recorded.trace, recorded.lanes, recorded.phases
    communication = lanes.communication_events
    use, inferred = _parallelism(trace, lanes)
    in_scope = np.flatnonzero(use != _NONE)
    if not len(in_scope):
        return ()
    complete = complete_steps(lanes, recorded.steps)
    module = modules_of_launches(
        trace.events, communication.launch_track[in_scope].astype(np.int64), communication.launch_ns[in_scope]
    )
    layers = layer_times(trace.events, lanes, phases, {name for name in module if name is not None})
    phase = phases.at(communication.launch_ns)
    members = grouped(
        ((name, int(use[i]), int(communication.kind[i]), int(phase[i])), i)
        for name, i in zip(module, in_scope.tolist(), strict=True)
    )
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
    return tuple(result)


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
    for name, host in intervals_of_modules(events, sorted(names)).items():
        start_ns, end_ns = (host.start_ns, host.end_ns) if lanes.device == "cpu" else _on_device(events, lanes, host)
        phase = phases.at(host.start_ns)
        for index in np.unique(phase).tolist():
            result[name, index] = Intervals.union_of(start_ns[phase == index], end_ns[phase == index])
    return result


def _on_device(events: EventTable, lanes: Lanes, host: HostIntervals) -> tuple[Int64, Int64]:
    """Return begin and end of what was launched in each interval, int64 [k] each; equal where nothing was."""
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
