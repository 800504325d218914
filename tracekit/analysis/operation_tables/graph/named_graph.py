"""Operations that can be replayed, and what to call them."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.analysis.replay.operation_graph import OperationGraph
from tracekit.model.events import Int64

__all__ = ["NamedGraph"]


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedGraph:
    """Operations that can be replayed, with what to call them.

    Attributes:
        graph: the operations; their types name them. Tasks are operations.
        compute_types: types of forwards and backwards.
        pause_types: types of time in which a rank does nothing that the table has.
        microbatches: of each group of steps the microbatch of each operation, int64 [n], or -1. A transfer and a pause
            have that of the operation that waits for them.
        stages: of each group of steps the stage to name for each operation, int64 [n], or -1.
    """

    graph: OperationGraph
    compute_types: frozenset[int]
    pause_types: frozenset[int]
    microbatches: tuple[Int64, ...]
    stages: tuple[Int64, ...]
