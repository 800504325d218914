"""Table of what expert parallelism brings to the experts of each rank."""

from tracekit.schema.columns import RANK, Column, Table

__all__ = ["EXPERT_LOAD"]

EXPERT_LOAD = Table(
    "expert_load",
    (
        Column("group", "int?", "", "Index into `groups`; null: not known, and the present ranks are compared."),
        Column("module", "str?", "", "The layer whose all-to-alls these are; null: no module is known."),
        RANK,
        Column("steps", "int", "", "Complete steps with all-to-alls, over which the means are."),
        Column("received_bytes", "float", "bytes", "Mean a step of what all-to-alls bring to the rank's experts."),
        Column("received_share", "float?", "", "Of what the group's present ranks receive; null: nothing."),
        Column("ratio", "float?", "", "To the mean of the group's other present ranks; null: there is none."),
    ),
)
