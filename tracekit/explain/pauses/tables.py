"""Which columns the table of pauses has, and what is kept of each rank's pauses for it.

A rank keeps when it saves or loads a checkpoint, evaluates, or logs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tracekit.model.columnar import Columnar
from tracekit.model.events import Int32, Int64
from tracekit.model.summary import table_part
from tracekit.model.table import RANK, Column, Display, Table
from tracekit.stats.grouped import summed

PAUSES_BY_RANK = Table(
    "pauses",
    (
        RANK,
        Column("pause", "str", "", "checkpoint, evaluation or logging."),
        Column("action", "str?", "", "Of a checkpoint: save, async_save (its copy), await (its end) or load.", null=""),
        Column("function", "str?", "", "What saves or loads a checkpoint.", null=""),
        Column("steps", "int", "", "Complete steps of the rank with such a pause."),
        Column("of_steps", "int", "", "Complete steps of the rank."),
        Column("total_ns", "int", "ns", "Time of the step's thread in complete steps."),
        Column("each_ns", "float", "ns", "Time in a step that has such a pause, the mean."),
        Column("others_wait_ns", "float?", "ns", "For how long others waited for it then, the median of them."),
        Column("wait_kind", "str?", "", "The communication in which they waited longest."),
    ),
    Display(
        "Checkpoints, evaluation and logging (ms in a step that has them)",
        "rank | pause | action? | function? | {steps} of {of_steps} | each_ns | others_wait_ns | in=wait_kind",
        bars="each_ns",
    ),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class RankPauses(Columnar):
    """n disjoint pauses of the step's thread, each kind of them in order of time.

    Attributes:
        pause: index into `PAUSES`, int32 [n].
        action: of a checkpoint, index into `CHECKPOINT_ACTIONS`, or -1, int32 [n].
        function: of a checkpoint, index into `CHECKPOINT_FUNCTIONS`, or -1, int32 [n].
        step: number of the step in which it begins, or -1, int64 [n].
        start_ns: on the rank's wall clock, int64 [n].
        end_ns: int64 [n].
        waiting_ns: for how long the rank waits in communication then, int64 [n].
    """

    pause: Int32
    action: Int32
    function: Int32
    step: Int64
    start_ns: Int64
    end_ns: Int64
    waiting_ns: Int64

    @property
    def duration_ns(self) -> Int64:
        """Return the length of each pause, int64 [n]."""
        return self.end_ns - self.start_ns

    def by_step_ns(self) -> Counter[int]:
        """Return how long the pauses of each step are together."""
        return summed(zip(self.step.tolist(), self.duration_ns.tolist(), strict=True))


PAUSE_TIMES = table_part("pauses", RankPauses)
