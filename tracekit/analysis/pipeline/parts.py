"""What is kept of one rank's pipeline: one action a row."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.model.columnar import Columnar
from tracekit.model.events import Int32, Int64
from tracekit.model.summary import Part

__all__ = ["ACTIONS", "Actions"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Actions(Columnar):
    """n actions of one rank, in order of time.

    Attributes:
        step: int64 [n], as recorded.
        stage: int32 [n]; -1 in a pipeline written by hand until all ranks together tell it.
        microbatch: int32 [n].
        kind: int32 [n], index into `ACTION_KINDS`.
        start_ns: int64 [n], on the rank's wall clock; on a GPU rank of the first kernel.
        end_ns: int64 [n], on the rank's wall clock; on a GPU rank of the last kernel.
        wait_ns: int64 [n], how long of it was no work: waiting for a receive, or the time between its parts.
    """

    step: Int64
    stage: Int32
    microbatch: Int32
    kind: Int32
    start_ns: Int64
    end_ns: Int64
    wait_ns: Int64

    @property
    def work_ns(self) -> Int64:
        """How long each action took without waiting, int64 [n]."""
        return self.end_ns - self.start_ns - self.wait_ns


ACTIONS = Part(name="actions", type=Actions, empty=Actions.empty, merge=Actions.concatenate)
