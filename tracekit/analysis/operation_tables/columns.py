"""The columns of a table of operations, as a tracer writes it, and those of what is found in it.

docs/operation-tables.md has the first table for readers; a test compares the two.
"""

from tracekit.analysis.table import RANK, Column, Table

__all__ = ["CRITICAL_PATH_RANKS", "CRITICAL_PATH_STEPS", "OPERATIONS", "OUTLIERS"]

OPERATIONS = Table(
    "operations",
    (
        Column("rank", "int", "", "Global rank, from 0. Without it, each stage is one rank."),
        Column("kind", "str", "", "What the operation is; see the kinds below."),
        Column("microbatch", "int?", "", "Number of the microbatch in its step; of forwards, backwards and messages."),
        Column("start", "int", "ns, us, ms or s", "When the operation began, on one clock for all ranks."),
        Column("end", "int", "ns, us, ms or s", "When it ended; or `duration` instead."),
        Column("stage", "int?", "", "Stage of the pipeline, from 0. Without it: place of the rank, and `chunk`."),
        Column("chunk", "int?", "", "Which of the rank's stages, from 0, where it has several and `stage` is missing."),
        Column("step", "int?", "", "Training step. Without it, a step begins when an operation of a rank comes again."),
        Column(
            "replica", "int?", "", "Replica of the model (data parallel). Without it: ranks of equal stages, in order."
        ),
    ),
)
OUTLIERS = Table(
    "outliers",
    (
        Column("step", "int", "", "The step in which it lasted so long."),
        RANK,
        Column("stage", "int?", "", "Its stage; null where it has none."),
        Column("operation", "str", "", "Its type."),
        Column("microbatch", "int?", "", "Its microbatch; null where it has none."),
        Column("duration_ns", "int", "ns", "How long it lasted; of a transfer without waiting for the sender."),
        Column("usual_ns", "int", "ns", "How long the same operation lasts in other steps."),
        Column("saves_ns", "int", "ns", "By how much a replay of this step is shorter if it alone lasts as usual."),
        Column("certainty", "str", "", "sure or likely: how far it is from what the operation varies by otherwise."),
    ),
)
CRITICAL_PATH_STEPS = Table(
    "critical_path_steps",
    (
        Column("step", "int", "", "Number of the step."),
        Column("step_ns", "int", "ns", "Its length in the replay; the other times sum to it."),
        Column("compute_ns", "int", "ns", "Forwards, backwards and other work on the longest chain over all ranks."),
        Column("transfer_ns", "int", "ns", "Messages and collectives on it."),
        Column("pause_ns", "int", "ns", "Time before an operation that nothing in the table explains."),
        Column("rank", "int?", "", "The rank that is on the chain for longest."),
        Column("rank_ns", "int", "ns", "For how long."),
    ),
)
CRITICAL_PATH_RANKS = Table(
    "critical_path_ranks",
    (
        RANK,
        Column("operation", "str", "", "Type of the operations."),
        Column("total_ns", "int", "ns", "Their time on the longest chains of all steps."),
        Column("share", "float", "ratio", "That as a share of all steps."),
    ),
)
