"""Collects operations and what waits for what, of steps that have the same operations."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from tracekit.analysis.operation_tables.operations import COMPUTE, KINDS, RECEIVES, SENDS
from tracekit.analysis.replay.operation_graph import GraphSteps
from tracekit.analysis.replay.replay import build_graph
from tracekit.model.events import ABSENT, Float64, Int64
from tracekit.model.spans import ACTION_KINDS

__all__ = ["OTHER_KINDS", "PAUSE", "TRANSFERS", "TYPES", "GraphBuilder"]

_ACTIONS = {"F": "forward", "B": "backward", "I": "input backward", "W": "weight backward"}
TRANSFERS = ("forward transfer", "backward transfer")
PAUSE = "pause"
OTHER_KINDS = tuple(kind for kind in KINDS if kind not in (*COMPUTE, *RECEIVES, *SENDS))
TYPES = (*(_ACTIONS[kind] for kind in ACTION_KINDS), *TRANSFERS, PAUSE, *OTHER_KINDS)
"""Types of operations; the first ones are those of `ACTION_KINDS`."""

_DEFAULTS = {"stage": ABSENT, "named_stage": ABSENT, "microbatch": ABSENT, "group": ABSENT}


@dataclass(kw_only=True)
class GraphBuilder:
    """Operations of k steps, added in blocks."""

    steps: Int64
    _blocks: list[dict[str, Int64]] = field(default_factory=list)
    _firsts: list[int] = field(default_factory=list)
    _durations: list[Float64] = field(default_factory=list)
    _edges: list[tuple[Int64, Int64]] = field(default_factory=list)
    _count: int = 0

    def add(self, duration_ns: Int64 | Float64, **columns: Int64 | int) -> Int64:
        """Add operations that last `duration_ns`, [m, k], at least 0, and return their numbers, int64 [m].

        columns: `type` and `rank`, and where they have one `stage`, `microbatch` and `group`; `named_stage` is also of
        what runs for a stage without being its work. int64 [m] or one value.
        """
        size = len(duration_ns)
        values = {name: np.broadcast_to(np.asarray(value), size) for name, value in (_DEFAULTS | columns).items()}
        self._blocks.append(values)
        self._firsts.append(self._count)
        self._durations.append(np.maximum(duration_ns, 0).astype(np.float64))
        self._count += size
        return np.arange(self._count - size, self._count)

    def wait(self, before: Int64, after: Int64) -> None:
        """Let operations wait for others, int64 [m] each; a pair with -1 is none."""
        known = (before != ABSENT) & (after != ABSENT)
        self._edges.append((before[known], after[known]))

    def wait_with_pauses(self, waits: Iterable[tuple[Int64, Int64]], operations: Int64, pause_ns: Int64) -> None:
        """Let each of the operations wait for those in `waits`, and then pause.

        waits: pairs of int64 [m], before and after. operations: int64 [m], ascending. pause_ns: int64 [m, k]; at 0 or
        below there is none.
        """
        paused = np.flatnonzero((pause_ns > 0).any(axis=1))
        rows = {name: self._values(name, operations[paused]) for name in ("rank", "microbatch", "named_stage")}
        pauses = self.add(pause_ns[paused], type=TYPES.index(PAUSE), **rows)
        self.wait(pauses, operations[paused])
        entry = operations.copy()
        entry[paused] = pauses
        for before, after in waits:
            self.wait(before, entry[np.searchsorted(operations, after)])

    def build(
        self, measured_ns: Float64, replaced_ns: Iterable[tuple[Int64, int, Int64]]
    ) -> tuple[GraphSteps, Int64, Int64]:
        """Return the graph of the steps, and the microbatch and stage to name for each operation.

        measured_ns: how long each step was, float64 [k]. replaced_ns: operations that synchronise with those of equal
        number, and how long they take from then on: int64 [m], a number, int64 [m, k].
        """
        duration_ns, group = np.concatenate(self._durations), self._column("group").copy()
        for operations, number, transfer_ns in replaced_ns:
            group[operations], duration_ns[operations] = number, np.maximum(transfer_ns, 0)
        before, after = (np.concatenate([edge[side] for edge in self._edges]) for side in (0, 1))
        type_, stage = self._column("type"), self._column("stage")
        graph_steps = GraphSteps(
            graph=build_graph(self._count, before, after, group),
            duration_ns=duration_ns,
            task=np.arange(self._count),
            kind=type_,
            comparison_class=type_ * (int(stage.max(initial=0)) + 2) + stage + 1,
            type=type_,
            rank=self._column("rank"),
            stage=stage,
            replica=np.full(self._count, ABSENT),
            steps=self.steps,
            measured_ns=measured_ns,
        )
        return graph_steps, self._column("microbatch"), self._column("named_stage")

    def _values(self, name: str, operations: Int64) -> Int64:
        """Return what a column has for some operations, int64 [m], ascending."""
        if not len(operations):
            return np.empty(0, dtype=np.int64)
        first, last = (bisect_right(self._firsts, number) - 1 for number in operations[[0, -1]].tolist())
        values = np.concatenate([block[name] for block in self._blocks[first : last + 1]])
        return values[operations - self._firsts[first]].astype(np.int64)

    def _column(self, name: str) -> Int64:
        return np.concatenate([block[name] for block in self._blocks]).astype(np.int64)
