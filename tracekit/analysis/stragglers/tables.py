"""Tables of the section on stragglers."""

from tracekit.analysis.table import RANK, Column, Display, Table

__all__ = ["SLOW_LINKS", "STRAGGLERS"]

_NULL = " Null: clocks cannot be compared."

STRAGGLERS = Table(
    "stragglers",
    (
        RANK,
        Column("caused_delay_ns", "int?", "ns", "Mean delay a step of its own making, not passed on." + _NULL),
        Column("wait_ns", "int?", "ns", "Mean time a step in which it waited for the last of a collective." + _NULL),
        Column("last_arrivals", "int?", "", "Collectives to which it came last, beyond clocks' errors." + _NULL),
        Column("arrivals", "int", "", "Collectives that were matched over ranks."),
        Column("cause", "str?", "", "Of most of the delay: compute, more_work, host or data.", form="words", null=""),
    ),
    Display(
        "Who holds up the others in collectives (ms a step)",
        "rank | delay caused=caused_delay_ns | by=cause | came last={last_arrivals} of {arrivals} | waited=wait_ns",
        most=4,
        bars="delay caused=caused_delay_ns | waited=wait_ns",
    ),
)
SLOW_LINKS = Table(
    "slow_links",
    (
        Column("ranks", "list[int]", "", "Those of the group, or the source and the destination of messages."),
        Column("carries_messages", "bool", "", "Whether it carries messages, and not collectives of the group."),
        Column("directed", "bool", "", "Whether it is slow from the first of the ranks to the second, and not back."),
        Column("slowdown", "float", "ratio", "How many times as long as on other links its transfers take."),
        Column("compared_with", "str", "", "What it is compared with."),
    ),
)
