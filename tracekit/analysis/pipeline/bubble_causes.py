"""Why a pipeline's ranks stand idle: replays of what they did, each with one more thing as it was measured.

Comes in: the steps of one pipeline. Goes out: the idle time of each rank by cause (definitions.md, "Pipeline").

    R0  every action takes the mean of its kind, nothing takes time on its way. Idle before the rank's first backward is
        warm-up, the rest drain: what the schedule costs.
    R1  ... the mean of its stage and kind: what R1 adds is imbalance.
    R2  ... and every activation and gradient the median time of its edge on its way: transfer.
    R3  ... and actions and ways each their own time: late peers.
        As measured: what is left is other, such as the host between actions, or waiting for a send.

An action waits for the one before it on its rank, and for the transfer of what it needs (`pipeline_transfers`). How
long a transfer took is known where the receiving rank waited all the while; elsewhere it is hidden, and takes the
median of its edge if that is not longer than what is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.pipeline.steps import PipelineSteps, Program
from tracekit.analysis.pipeline.transfers import Edges, Transfers, edges_between_ranks, transfers_of
from tracekit.analysis.replay.replay import CyclicGraphError, Float64, Graph, build_graph
from tracekit.model.events import ABSENT, Int32, Int64
from tracekit.model.run import Run
from tracekit.model.spans import ACTION_KINDS

__all__ = [
    "CAUSES",
    "Causes",
    "MeasuredPipeline",
    "PipelineReplay",
    "Typical",
    "causes_of_bubbles",
    "measured_pipeline",
    "pipeline_replay",
]

CAUSES = ("warmup", "drain", "imbalance", "transfer", "late_peer", "other")
_BACKWARD = tuple(ACTION_KINDS.index(kind) for kind in ("B", "I"))


@dataclass(frozen=True, kw_only=True, eq=False)
class PipelineReplay:
    """n actions of ranks int64 [n], ready to be replayed."""

    rank: Int64
    graph: Graph

    def __call__(self, work_ns: Float64, transfer_ns: Float64) -> tuple[Float64, Float64]:
        """Begins float64 [n, k] of actions that take float64 [n, k], with transfers of float64 [e, k]; and the time
        from the first action to the last end, float64 [k].
        """
        timeline = self.graph.replay(np.concatenate((work_ns, transfer_ns)))
        return timeline.start[: len(self.rank)], timeline.end[: len(self.rank)].max(axis=0)

    def by_rank(self, values: Float64) -> Float64:
        """float64 [ranks, k]: sums of float64 [n, k]."""
        result = np.zeros((int(self.rank.max()) + 1, values.shape[1]))
        np.add.at(result, self.rank, values)
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class Typical:
    """What is typical of a pipeline's steps, in ns. of_kind: float64 [kinds]; of_stage: float64 [kinds, stages], means;
    NaN where there are none. of_edge: medians by the stages that send and receive; any_edge_ns: over all.
    """

    of_kind: Float64
    of_stage: Float64
    of_edge: dict[tuple[int, int], float]
    any_edge_ns: float

    def of_edges(self, stage: Int32, edges: Edges) -> Float64:
        """float64 [e]: the typical transfer of each edge between actions of these stages, int32 [n]."""
        return np.array([self.of_edge.get(edge, self.any_edge_ns) for edge in _stages_of(stage, edges)], dtype=float)


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredPipeline:
    """One pipeline as its steps show it: of each program what is sent, and the replay of its order."""

    ranks: tuple[int, ...]
    programs: tuple[Program, ...]
    edges: tuple[Edges, ...]
    transfers: tuple[Transfers, ...]
    replays: tuple[PipelineReplay, ...]
    typical: Typical


@dataclass(frozen=True, kw_only=True, eq=False)
class Causes:
    """idle_ns: int64 [ranks, causes], over all steps; a rank's sum to its bubbles. ideal_ratio: the share of its time
    in which R0 is idle. replay_error: by how much R3 takes longer than what was measured, as a share.
    """

    idle_ns: Int64
    ideal_ratio: float
    replay_error: float


def pipeline_replay(rank: Int64, edges: Edges, posted_after: Int64) -> PipelineReplay:
    """Of actions in the order of each rank; the receive of each edge is posted after an action int64 [e], or -1.

    Raises CyclicGraphError when they wait for each other.
    """
    count = len(rank)
    follows = np.flatnonzero(rank[1:] == rank[:-1])
    transfer = count + np.arange(len(edges))
    posted = posted_after != ABSENT
    graph = build_graph(
        count + len(edges),
        np.concatenate((follows, edges.producers, posted_after[posted], transfer)),
        np.concatenate((follows + 1, transfer, transfer[posted], edges.consumers)),
        np.full(count + len(edges), -1, dtype=np.int64),
    )
    return PipelineReplay(rank=rank, graph=graph)


def measured_pipeline(run: Run, steps: PipelineSteps) -> MeasuredPipeline | None:
    """None where ranks are missing, in all steps or in some, or actions would wait for each other."""
    if not steps.programs or any(len(np.unique(p.rank)) < len(steps.ranks) for p in steps.programs):
        return None
    edges = [edges_between_ranks(p.rank, p.kind, p.stage, p.microbatch) for p in steps.programs]
    transfers = [transfers_of(run, steps.ranks, p, own) for p, own in zip(steps.programs, edges, strict=True)]
    try:
        replays = [
            pipeline_replay(program.rank, own, sent.posted_after)
            for program, own, sent in zip(steps.programs, edges, transfers, strict=True)
        ]
    except CyclicGraphError:
        return None
    return MeasuredPipeline(
        ranks=steps.ranks,
        programs=steps.programs,
        edges=tuple(edges),
        transfers=tuple(transfers),
        replays=tuple(replays),
        typical=_typical(steps.programs, edges, transfers),
    )


def causes_of_bubbles(measured: MeasuredPipeline, bubble_ns: Sequence[int]) -> Causes:
    """Of the bubbles of each of the pipeline's ranks, over all steps."""
    typical = measured.typical
    idle_ns = np.zeros((5, len(measured.ranks)))  # the warm-up of R0, and all of R0 to R3
    equal_ns = measured_ns = replayed_ns = 0.0
    for program, edges, transfers, replay in zip(
        measured.programs, measured.edges, measured.transfers, measured.replays, strict=True
    ):
        shape = program.work_ns.shape
        equal: Float64 = np.broadcast_to(typical.of_kind[program.kind][:, None], shape)
        by_stage: Float64 = np.broadcast_to(typical.of_stage[program.kind, program.stage][:, None], shape)
        typical_ns: Float64 = np.broadcast_to(typical.of_edges(program.stage, edges)[:, None], transfers.took_ns.shape)
        own_ns = np.where(transfers.visible, transfers.took_ns, np.minimum(transfers.took_ns, typical_ns))
        nothing = np.zeros_like(own_ns)
        chain = (
            (equal, nothing),
            (by_stage, nothing),
            (by_stage, typical_ns),
            (program.work_ns.astype(np.float64), own_ns),
        )
        span_ns = np.zeros(shape[1])
        for number, (work_ns, transfer_ns) in enumerate(chain):
            start_ns, span_ns = replay(work_ns, transfer_ns)
            idle_ns[number + 1] += (span_ns - replay.by_rank(work_ns)).sum(axis=1)
            if number == 0:
                idle_ns[0] += _warmup_ns(program, work_ns, start_ns)
                equal_ns += float(span_ns.sum())
        measured_ns += float(program.span_ns.sum())
        replayed_ns += float(span_ns.sum())  # of R3
    total_ns = equal_ns * len(measured.ranks)
    reached_ns = np.concatenate((np.rint(idle_ns).astype(np.int64), np.array([bubble_ns], dtype=np.int64)))
    return Causes(
        idle_ns=np.diff(reached_ns, axis=0, prepend=0).T,
        ideal_ratio=float(idle_ns[1].sum()) / total_ns if total_ns else 0.0,
        replay_error=replayed_ns / measured_ns - 1 if measured_ns else 0.0,
    )


def _typical(programs: Sequence[Program], edges: Sequence[Edges], transfers: Sequence[Transfers]) -> Typical:
    """Over all steps of a pipeline."""
    stages = max(int(p.stage.max()) for p in programs) + 1
    counts, sums = np.zeros((len(ACTION_KINDS), stages)), np.zeros((len(ACTION_KINDS), stages))
    seen: dict[tuple[int, int], list[Int64]] = {}
    for program, own, found in zip(programs, edges, transfers, strict=True):
        np.add.at(counts, (program.kind, program.stage), program.work_ns.shape[1])
        np.add.at(sums, (program.kind, program.stage), program.work_ns.sum(axis=1))
        for edge, took_ns, visible in zip(_stages_of(program.stage, own), found.took_ns, found.visible, strict=True):
            seen.setdefault(edge, []).append(took_ns[visible])
    known = {edge: np.concatenate(values) for edge, values in seen.items()}
    every = np.concatenate([np.empty(0), *known.values()])
    with np.errstate(invalid="ignore"):
        of_kind, of_stage = sums.sum(axis=1) / counts.sum(axis=1), sums / counts
    return Typical(
        of_kind=of_kind,
        of_stage=of_stage,
        of_edge={edge: float(np.median(values)) for edge, values in known.items() if len(values)},
        any_edge_ns=float(np.median(every)) if len(every) else 0.0,
    )


def _stages_of(stage: Int32, edges: Edges) -> list[tuple[int, int]]:
    """From which stage to which each edge leads."""
    return list(zip(stage[edges.producers].tolist(), stage[edges.consumers].tolist(), strict=True))


def _warmup_ns(program: Program, work_ns: Float64, start_ns: Float64) -> Float64:
    """float64 [ranks]: how long each is idle before its first backward, or without one before its first action."""
    result = np.zeros(int(program.rank.max()) + 1)
    for rank in range(len(result)):
        own = np.flatnonzero(program.rank == rank)
        backward = np.flatnonzero(np.isin(program.kind[own], _BACKWARD))
        first = int(backward[0]) if len(backward) else 0
        result[rank] = float((start_ns[own[first]] - work_ns[own[:first]].sum(axis=0)).sum())
    return result
