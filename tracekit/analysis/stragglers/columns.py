"""Tables of who holds up whom."""

from tracekit.analysis.table import RANK, Column, Table

__all__ = ["CRITICAL_PATH", "STRAGGLERS"]

STRAGGLERS = Table(
    "stragglers",
    (
        RANK,
        Column("caused_delay_ns", "int", "ns", "Mean a step by which it held up others; what it passed on is not its."),
        Column("wait_ns", "int", "ns", "Mean time a step from its arrivals at collectives to the last one's."),
        Column("last_arrivals", "int", "", "Collectives to which it came last, by more than the clocks' uncertainty."),
        Column("arrivals", "int", "", "Collectives that were matched over ranks."),
        Column("cause", "str?", "", "What most of it is due to: compute, more_work, host or data; null: nothing."),
    ),
)
CRITICAL_PATH = Table(
    "critical_path",
    (
        RANK,
        Column("kind", "str", "", "compute, data, host (between operations) or communication."),
        Column("name", "str", "", "Operation and group; of the others, what they led to."),
        Column("total_ns", "int", "ns", "Time on the chain that bounds the steps, over the counted steps."),
        Column("share", "float", "ratio", "Of the chain."),
    ),
)
