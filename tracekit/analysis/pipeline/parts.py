"""What is kept of one rank's pipeline: a row an action."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.model.columnar import Columnar
from tracekit.model.events import Int32, Int64
from tracekit.model.summary import Part

__all__ = ["ACTIONS", "Actions"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Actions(Columnar):
    """n actions in order of time, on the rank's wall clock.

    step: int64 [n], as recorded. stage, microbatch: int32 [n]; the stage is -1 while only the ranks together can tell.
    kind: int32 [n], index into `ACTION_KINDS`. start_ns, end_ns: int64 [n]; on a GPU rank of its kernels. wait_ns:
    int64 [n], what of it was no work: waiting for a receive inside it, or between its parts.
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
        """int64 [n]: how long each action took, waiting excluded."""
        return self.end_ns - self.start_ns - self.wait_ns


ACTIONS = Part(name="actions", type=Actions, empty=Actions.empty, merge=Actions.concatenate)
