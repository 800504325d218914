"""Which module tensor, expert and context parallelism communicate for.

Per rank (in a worker): a trace and its lanes to `TensorSum` rows. Over ranks: `tensor(run)` to tables. Every collective
of a tp, ep or cp group is in a row; where no module is known of it, one without a name, so that nothing is lost.
Without the capture's metadata, what DTensor redistributes is taken for tensor parallelism, and marked inferred.
"""

from __future__ import annotations

import re
import statistics
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
from tracekit.analysis.events.innermost_span import innermost_span
from tracekit.analysis.events.modules import modules_of_launches
from tracekit.analysis.events.phases import PHASES, PhaseTimeline
from tracekit.analysis.model_parallel.per_rank.layer_times import layer_times
from tracekit.analysis.timeline.lanes import Lanes, complete_steps
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, DecodedTrace, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.run import Run
from tracekit.model.summary import StepParts, TensorSum

__all__ = ["Tensor", "merge_tensor_sums", "tensor", "tensor_sums"]

_WITHIN_LAYERS = ("tp", "ep", "cp")
_NONE = -1
_DTENSOR = re.compile(r"(?:(?:Nested)?Redistribute|_FromTorchTensor|_ToTorchTensor)(?:Backward)?")


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """`modules`: columns of schema.TENSOR, over the complete steps of each rank. `by_module`: columns of
    schema.TENSOR_BY_MODULE, and `by_layer`: of schema.TENSOR_BY_LAYER, most exposed first. All empty without such
    groups.
    """

    modules: schema.Frame = schema.Frame(schema.TENSOR)
    by_module: schema.Frame = schema.Frame(schema.TENSOR_BY_MODULE)
    by_layer: schema.Frame = schema.Frame(schema.TENSOR_BY_LAYER)


def tensor_sums(
    trace: DecodedTrace, lanes: Lanes, phases: PhaseTimeline, steps: Sequence[StepParts]
) -> list[TensorSum]:
    """Rows by (module, parallelism, kind, phase) of one rank: times clipped to the complete steps among `steps`, counts
    by launch.
    """
    found = lanes.communication_events
    use, inferred = _parallelism(trace, lanes)
    in_scope = np.flatnonzero(use != _NONE)
    if not len(in_scope):
        return []
    complete = complete_steps(lanes, steps)
    module = modules_of_launches(trace.events, found.launch_track[in_scope].astype(np.int64), found.launch_ns[in_scope])
    layers = layer_times(trace.events, lanes, phases, {name for name in module if name is not None})
    phase = phases.at(found.launch_ns)
    members: dict[tuple[str | None, int, int, int], list[int]] = defaultdict(list)
    for name, i in zip(module, in_scope.tolist(), strict=True):
        members[name, int(use[i]), int(found.kind[i]), int(phase[i])].append(i)
    result = []
    for (name, parallelism, kind, phase_index), positions in members.items():
        own = np.array(positions, dtype=np.int64)
        here = own[complete.counted[own]]
        time = Intervals.union_of(found.start_ns[own], found.end_ns[own]) & complete.time
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
                size_bytes=sum_of_sizes(found.size_bytes[here]),
                exposed_ns=(time - lanes.compute).len_ns,
                layer_ns=None if layer is None else (time | (layer & complete.time)).len_ns,
                inferred=inferred,
            )
        )
    return result


def _parallelism(trace: DecodedTrace, lanes: Lanes) -> tuple[Int64, bool]:
    """int64 [n]: of each communication event the index of its parallelism in `_WITHIN_LAYERS`, or -1; and whether that
    is inferred."""
    found, events = lanes.communication_events, trace.events
    of_group = [_WITHIN_LAYERS.index(g.parallelism) if g.parallelism in _WITHIN_LAYERS else _NONE for g in found.groups]
    use = np.array([*of_group, _NONE], dtype=np.int64)[found.group]
    if trace.header.metadata is not None or (use != _NONE).any():
        return use, False
    # Out of the graph, DTensor serves FSDP2 as well: for norms of gradients, for instance.
    in_graph = events.named(lambda name: _DTENSOR.fullmatch(name) is not None) & (events.sequence_number != ABSENT)
    spans = events.each_once(in_graph)
    around = innermost_span(events, spans, found.launch_track.astype(np.int64), found.launch_ns)
    return np.where(around != ABSENT, _WITHIN_LAYERS.index("tp"), _NONE), True


def merge_tensor_sums(rows: Sequence[TensorSum]) -> tuple[TensorSum, ...]:
    """Those of several recordings of one rank."""
    amounts = ("count", "size_bytes", "exposed_ns", "layer_ns")
    return merge_sums(rows, lambda row: (row.module, row.parallelism, row.kind, row.phase), amounts)


def tensor(run: Run) -> Tensor:
    """The tables over all ranks."""
    rows = [
        {
            "rank": summary.rank,
            "module": row.module,
            "parallelism": row.parallelism,
            "phase": row.phase,
            "kind": row.kind,
            "count": row.count,
            "size_bytes": row.size_bytes,
            "exposed_ns": row.exposed_ns,
            "layer_ns": row.layer_ns,
            "layer_share": _share(row.exposed_ns, row.layer_ns),
            "inferred": row.inferred,
        }
        for summary in run.ranks
        for row in summary.tensor
    ]
    by_module = _by_module(run)
    return Tensor(
        modules=rows,
        by_module=by_module,
        by_layer=_by_layer(by_module),
    )


def _share(exposed_ns: float | None, layer_ns: float | None) -> float | None:
    return exposed_ns / layer_ns if layer_ns and exposed_ns is not None else None


def _by_module(run: Run) -> list[dict[str, Any]]:
    shares: dict[tuple[str | None, str, str, str | None], list[StepShare]] = defaultdict(list)
    layers: dict[tuple[str | None, str, str, str | None], list[float | None]] = defaultdict(list)
    for summary in run.ranks:
        steps = sum(step.complete for step in summary.steps)
        for row in summary.tensor:
            key = (row.module, row.parallelism, row.kind, row.phase)
            shares[key].append(step_share(summary.rank, steps, [row]))
            layers[key].append(None if row.layer_ns is None else row.layer_ns / steps)
    inferred = any(row.inferred for summary in run.ranks for row in summary.tensor)
    rows = []
    for key, ranks in shares.items():
        module, parallelism, kind, phase = key
        means = means_over_ranks(ranks)
        known = [layer for layer in layers[key] if layer is not None]
        layer_ns = statistics.fmean(known) if len(known) == len(layers[key]) else None
        share = _share(means["exposed_ns"], layer_ns)
        layer = {"layer_ns": layer_ns, "layer_share": share, "inferred": inferred}
        rows.append({"module": module, "parallelism": parallelism, "phase": phase, "kind": kind, **means, **layer})
    # Sorting is stable: rows of equal exposure stay in the order in which the first rank came to them.
    return sorted(rows, key=lambda row: -row["exposed_ns"])


def _by_layer(by_module: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    same, amounts = ("parallelism", "kind", "phase", "inferred"), ("count", "size_bytes", "exposed_ns", "layer_ns")
    rows = layers_alike(by_module, same, amounts)
    return [row | {"layer_share": _share(row["exposed_ns"], row["layer_ns"])} for row in rows]
