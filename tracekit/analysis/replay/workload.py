"""What a job did, as operations that can be replayed: the seam between what was recorded and what-if questions.

An operation belongs to a piece of work, usually alone: an action that a message interrupts is one piece of several
operations. Pieces of one kind would last equally long in an ideal job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracekit.analysis.replay.replay import Float64, Graph
from tracekit.model.events import Bool, Int64

__all__ = ["Job", "Workload"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """Steps that share a graph of n operations in k replicas.

    duration_ns: float64 [n, k]; of communication the transfer, without waiting for others. work: int64 [n], the piece
    each belongs to. kind, peers: int64 [w], of each piece what it is, and with which pieces of other ranks it compares.
    type: int64 [n], index into the job's types. rank, stage, replica: int64 [n], -1 where not known.

    steps: int64 [s]. measured_ns: float64 [s], how long each was. step_ends: int64 [s, r], the operations that end each
    step where the steps follow one another in one replica; None where each replica is a step of its own. begin_ns: when
    the last rank began the first of them; a step lasts from the last rank's begin to the last rank's end.
    """

    graph: Graph
    duration_ns: Float64
    work: Int64
    kind: Int64
    peers: Int64
    type: Int64
    rank: Int64
    stage: Int64
    replica: Int64
    steps: Int64
    measured_ns: Float64
    step_ends: Int64 | None = None
    begin_ns: float = 0.0

    def step_ns(self, duration_ns: Float64) -> Float64:
        """float64 [s]: how long each step takes with these durations, float64 [n, k]."""
        if self.step_ends is None:
            return self.graph.replay(duration_ns).span
        return np.asarray(self.steps_of_each_ns([duration_ns])[:, 0])

    def steps_of_each_ns(self, durations_ns: Sequence[Float64]) -> Float64:
        """float64 [s, j]: how long each step takes with each of j durations, float64 [n, k] each."""
        if self.step_ends is None:
            return np.stack([self.step_ns(duration_ns) for duration_ns in durations_ns], axis=1)
        timeline = self.graph.replay(np.concatenate(durations_ns, axis=1))
        return np.diff(timeline.end[self.step_ends].max(axis=1), axis=0, prepend=self.begin_ns)

    @cached_property
    def piece_ns(self) -> Float64:
        """float64 [w, k]: how long each piece of work lasts."""
        total = np.zeros((len(self.kind), self.duration_ns.shape[1]))
        np.add.at(total, self.work, self.duration_ns)
        return total

    @cached_property
    def piece_rank(self) -> Int64:
        """int64 [w]."""
        return self._of_piece(self.rank)

    @cached_property
    def piece_stage(self) -> Int64:
        """int64 [w]."""
        return self._of_piece(self.stage)

    def _of_piece(self, values: Int64) -> Int64:
        result = np.full(len(self.kind), -1, dtype=np.int64)
        result[self.work] = values
        return result

    def with_pieces(self, piece_ns: Float64) -> Float64:
        """Durations float64 [n, k] at which the pieces last `piece_ns`, float64 [w, k], their parts in proportion."""
        own = self.piece_ns
        ratio = np.divide(piece_ns, own, out=np.zeros_like(own), where=own != 0)
        parts = np.bincount(self.work, minlength=len(self.kind))[:, None]
        where_nothing = np.where(own == 0, piece_ns / np.maximum(parts, 1), 0.0)
        return np.asarray(self.duration_ns * ratio[self.work] + where_nothing[self.work])


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """types: names of types of operations. communication_kinds: kinds of pieces of work that transfer. clock_error_ns:
    by how much times of different ranks may be wrong. notes: what was left out, and why.
    """

    workloads: tuple[Workload, ...]
    types: tuple[str, ...]
    communication_kinds: frozenset[int]
    clock_error_ns: int = 0
    notes: tuple[str, ...] = ()

    def transfers(self, workload: Workload) -> Bool:
        """bool [w]: which pieces of work transfer."""
        return np.isin(workload.kind, sorted(self.communication_kinds))
