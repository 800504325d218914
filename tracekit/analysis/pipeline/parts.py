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
        issue_ns: int64 [n], when the host began it, on the rank's wall clock.
        start_ns: int64 [n], on the rank's wall clock; on a GPU rank of the first kernel.
        end_ns: int64 [n], on the rank's wall clock; on a GPU rank of the last kernel.
        wait_ns: int64 [n], how long of it was no work: waiting for a receive, or the time between its parts.
        idle_ns: int64 [n], how long of its work a GPU did nothing, because the host had not launched what comes next.
        other_ns: int64 [n], how long the rank computed or copied other things, or was in a collective, since the
            action before or the step's beginning.
        data_ns: int64 [n], how long it loaded data, and computed nothing, since then.
    """

    step: Int64
    stage: Int32
    microbatch: Int32
    kind: Int32
    issue_ns: Int64
    start_ns: Int64
    end_ns: Int64
    wait_ns: Int64
    idle_ns: Int64
    other_ns: Int64
    data_ns: Int64

    @property
    def work_ns(self) -> Int64:
        """How long each action took without waiting, int64 [n]."""
        return self.end_ns - self.start_ns - self.wait_ns


ACTIONS = Part(name="actions", type=Actions, empty=Actions.empty, merge=Actions.concatenate)
