"""The operations of a job in one form, whatever tracer recorded them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tracekit.analysis.operation_tables.formats.places import separate_steps
from tracekit.model.columnar import Columnar
from tracekit.model.events import Bool, Int32, Int64
from tracekit.model.spans import ACTION_KINDS

__all__ = ["COLLECTIVES", "COMPUTE", "KINDS", "RECEIVES", "SENDS", "OperationTable", "Operations"]

COMPUTE = ACTION_KINDS
"""Forward F, backward B, and the halves of a split backward: gradients of inputs I and of weights W."""
RECEIVES = ("forward-recv", "backward-recv")
SENDS = ("forward-send", "backward-send")
COLLECTIVES = ("all-reduce", "reduce-scatter", "all-gather")
KINDS = (*COMPUTE, *RECEIVES, *SENDS, *COLLECTIVES, "optimizer", "data", "other")


@dataclass(frozen=True, kw_only=True, eq=False)
class Operations(Columnar):
    """n operations, by step, rank and start.

    Attributes:
        rank: int64 [n].
        replica: replica of the model, int64 [n].
        stage: int64 [n]; of other operations than forwards, backwards and messages the first stage of the rank.
        step: int64 [n].
        microbatch: int64 [n], or -1.
        kind: index into `KINDS`, int32 [n].
        start_ns: int64 [n].
        end_ns: int64 [n].
    """

    rank: Int64
    replica: Int64
    stage: Int64
    step: Int64
    microbatch: Int64
    kind: Int32
    start_ns: Int64
    end_ns: Int64

    def of_kinds(self, kinds: tuple[str, ...]) -> Bool:
        """Return which operations are of one of the kinds, bool [n]."""
        return np.isin(self.kind, [KINDS.index(kind) for kind in kinds])

    def of_step(self, number: int) -> Operations:
        """Return the operations of one step."""
        first, stop = np.searchsorted(self.step, (number, number + 1)).tolist()
        return self.rows(slice(first, stop))

    def in_order(self) -> Operations:
        """Return the operations by step, rank and start, with steps that follow one another."""
        moved_ns = separate_steps(self.rank, self.step, self.start_ns, self.end_ns)
        apart = replace(self, start_ns=self.start_ns + moved_ns, end_ns=self.end_ns + moved_ns)
        return apart.rows(np.lexsort((self.kind, self.microbatch, self.end_ns, self.start_ns, self.rank, self.step)))


@dataclass(frozen=True, kw_only=True)
class OperationTable:
    """A table that was read.

    Attributes:
        path: as the user typed it.
        source: what kind of file it is, for a sentence.
        operations: by step, rank and start.
        measured_ns: how long each step was, where the tracer measured it besides its operations.
        modelled: times within a step are those of a model, because the tracer has sums alone.
        notes: what was assumed or left out.
    """

    path: str
    source: str
    operations: Operations
    measured_ns: dict[int, int]
    modelled: bool = False
    notes: tuple[str, ...] = ()
