"""Tables of pipelines."""

from tracekit.schema.columns import RANK, Column, Table

__all__ = ["PIPELINE_RANKS", "PIPELINE_STAGES"]

PIPELINE_STAGES = Table(
    "pipeline_stages",
    (
        Column("stage", "int", "", "Number of the stage, from 0."),
        Column("kind", "str", "", "F forward, B backward, I its input gradient and W its weight gradient, if split."),
        Column("count", "int", "", "Actions in the steps that all ranks completed."),
        Column("mean_ns", "int", "ns", "Mean time of one, without waiting for a receive."),
    ),
)
PIPELINE_RANKS = Table(
    "pipeline_ranks",
    (
        RANK,
        Column("stages", "list", "", "Its stages."),
        Column("busy_ns", "int", "ns", "Time covered by its actions in the steps that all ranks completed."),
        Column("bubble_ns", "int?", "ns", "The rest of the time from the pipeline's first to its last action."),
        Column("bubble_ratio", "float?", "ratio", "bubble over that time; null where ranks or clocks are missing."),
    ),
)
