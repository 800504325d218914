"""The table of pauses."""

from tracekit.analysis.table import RANK, Column, Display, Table

__all__ = ["PAUSES_BY_RANK"]

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
