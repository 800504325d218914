"""Tables of the sections on stragglers and on the critical path."""

from tracekit.analysis.table import RANK, Column, Table

__all__ = ["CRITICAL_PATH", "STRAGGLERS"]

STRAGGLERS = Table(
    "stragglers",
    (
        RANK,
        Column("caused_delay_ns", "int", "ns", "Mean delay a step that it caused itself, not what it passed on."),
        Column("wait_ns", "int", "ns", "Mean time a step that it waited in collectives for the last rank."),
        Column("last_arrivals", "int", "", "Collectives to which it came last, by more than the clocks' uncertainty."),
        Column("arrivals", "int", "", "Collectives that were matched over ranks."),
        Column("cause", "str?", "", "Cause of most of the delay: compute, more_work, host or data; null: none."),
    ),
)
CRITICAL_PATH = Table(
    "critical_path",
    (
        RANK,
        Column("kind", "str", "", "compute, data, host (between operations) or communication."),
        Column(
            "name",
            "str",
            "",
            "Operation and group of communication; of other kinds, what they led to.",
        ),
        Column(
            "total_ns",
            "int",
            "ns",
            "Time on the chain that bounds the steps, over the counted steps.",
        ),
        Column("share", "float", "ratio", "The time as a share of the chain."),
    ),
)
