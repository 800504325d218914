"""Which columns the tables of communication have, and what is kept of each rank's communication for them.

A rank keeps sums by group, kind and phase, and by group.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.model.communication import GroupKey
from tracekit.model.summary import sums_part
from tracekit.model.table import RANK, Column, Display, Table

COMMUNICATION = Table(
    "communication",
    (
        RANK,
        Column("group", "int?", "", "Id in `groups`; null when the trace does not tell."),
        Column("kind", "str", "", "all_reduce, all_gather, ...; unclassified: looks like communication."),
        Column("phase", "str?", "", "forward, backward or optimizer, by its launch."),
        Column("count", "int", "", "Events launched in complete steps."),
        Column("size_bytes", "int?", "bytes", "Sum of the full arrays; null when one is unknown."),
        Column("total_ns", "int", "ns", "Time covered by these events. Rows may overlap."),
        Column("exposed_ns", "int", "ns", "Exposed time: the rows of a rank sum to its exposed_comm_ns."),
    ),
)
COMMUNICATION_BY_KIND = Table(
    "communication_by_kind",
    (
        Column("kind", "str", "", "all_reduce, all_gather, ..."),
        Column("phase", "str?", "", "forward, backward or optimizer."),
        Column("group", "str?", "", "Parallelism of the group, else its description."),
        Column("ranks", "int", "", "Ranks that take part; the means are over them and their complete steps."),
        Column("count", "float", "", "Mean number a step."),
        Column("size_bytes", "float?", "bytes", "Mean of the full arrays a step; null when one is unknown."),
        Column("total_ns", "float", "ns", "Mean time a step."),
        Column("exposed_ns", "float", "ns", "Mean exposed time a step."),
        Column("worst_rank", "int", "", "The rank with the most exposed time."),
        Column("worst_exposed_ns", "float", "ns", "Its exposed time a step."),
    ),
    Display(
        "Communication (ms a step, mean over the ranks that take part)",
        "kind | phase | group | count | size_bytes | total_ns | exposed_ns | {worst_rank}: {worst_exposed_ns}",
        bars="exposed_ns | hidden={total_ns-exposed_ns}",
    ),
    in_json=False,
)
_DIMENSION = Column(
    "dimension", "str?", "", "dp, tp, ...: name in the mesh, else what its groups are for; null: unknown."
)
_INFERRED = Column("inferred", "bool", "", "Whether that was concluded from names, members or messages of groups.")
DIMENSIONS = Table(
    "dimensions",
    (
        RANK,
        _DIMENSION,
        _INFERRED,
        Column("groups", "list[int]", "", "Ids in `groups` of those that the rank communicates in."),
        Column("group_size", "int?", "", "Ranks of the largest of them; null when unknown."),
        Column("hosts", "int?", "", "Hosts that the widest of them spans; null when one is unknown."),
        Column("total_ns", "int", "ns", "Time of its groups' collectives, and of its messages, in complete steps."),
        Column("exposed_ns", "int", "ns", "Exposed time: the rows of a rank sum to its exposed_comm_ns."),
    ),
)
DIMENSIONS_BY_NAME = Table(
    "dimensions_by_name",
    (
        _DIMENSION,
        _INFERRED,
        Column("ranks", "int", "", "Ranks that communicate in it; the means are over them and their complete steps."),
        Column("group_size", "int?", "", "Ranks of its largest group; null when unknown."),
        Column("hosts", "int?", "", "Hosts that its widest group spans; null when one is unknown."),
        Column("total_ns", "float", "ns", "Mean time a step of its communication."),
        Column("exposed_ns", "float", "ns", "Mean exposed time a step."),
        Column("share", "float", "ratio", "Exposed time of all ranks by the time of their steps."),
        Column("waiting_ratio", "float?", "ratio", "Of the time in its collectives, until the last rank arrives."),
        Column("waiting_unknown", "str?", "", "Why that ratio is null."),
        Column("worst_rank", "int", "", "The rank with the most exposed time."),
        Column("worst_exposed_ns", "float", "ns", "Its exposed time a step."),
    ),
    Display(
        "Dimensions of the mesh (ms a step, mean over ranks)",
        "dimension | inferred? | ranks=group_size | hosts | total_ns | exposed_ns | of step=share "
        "| late ranks=waiting_ratio | {worst_rank}: {worst_exposed_ns}",
        bars="exposed_ns",
    ),
)


def _significant(name: str, meaning: str) -> Column:
    """Return a column of times that are null where the clocks' uncertainty hides them."""
    return Column(name, "int?", "ns", meaning, null="n.s.")


COLLECTIVES = Table(
    "collectives",
    (
        Column("group", "int", "", "Id in `groups`."),
        Column("kind", "str", "", "all_reduce, all_gather, ..."),
        Column("count", "int", "", "Instances in the steps that all ranks completed."),
        Column("size_bytes", "int?", "bytes", "The full array."),
        Column("matched_by", "str", "", "seq: by sequence ids; order: by the order within the group."),
        Column("ranks", "int", "", "Ranks of the group that are there."),
        Column("link", "str?", "", "host: its ranks share one; network: each has its own; mixed; null: not known."),
        _significant("skew_p50_ns", "Median time from the first to the last arrival; null: not significant."),
        _significant("skew_max_ns", "The longest; null: below the clocks' uncertainty."),
        _significant("wait_mean_ns", "Mean over ranks of the time from its to the last arrival; null likewise."),
        _significant("queued_p50_ns", "Median time from the last arrival until the stream was free; null likewise."),
        Column("transfer_p50_ns", "int", "ns", "Median time from then to the last end.", title="transfer"),
        Column("algbw_bps", "float?", "B/s", "Size by that time."),
        Column("busbw_bps", "float?", "B/s", "algbw times its kind's factor in nccl-tests.", title="bus bandwidth"),
        Column("error_ns", "int?", "ns", "Uncertainty of the skew; null: clocks that cannot be compared."),
        Column("significant", "bool", "", "Whether any skew is above that uncertainty."),
    ),
    Display(
        "Collectives over ranks (ms; skew: first to last arrival{note})",
        "kind | group=name | size_bytes | count | skew_p50_ns | skew_max_ns | wait_mean_ns "
        "| queued=queued_p50_ns? | transfer_p50_ns | bus GB/s=busbw_bps",
        most=12,
    ),
)


@dataclass(frozen=True, kw_only=True)
class CommunicationSum:
    """Communication of one rank by group, kind and phase, over its complete steps."""

    group: GroupKey | None
    kind: str
    phase: str | None
    count: int
    size_bytes: int | None
    total_ns: int
    exposed_ns: int


@dataclass(frozen=True, kw_only=True)
class GroupTime:
    """Time of one rank's collectives, or of its messages, in one group (None: not known), over its complete steps."""

    group: GroupKey | None
    messages: bool
    total_ns: int
    exposed_ns: int


COMMUNICATION_SUMS = sums_part(
    "communication",
    CommunicationSum,
    key=("group", "kind", "phase"),
    amounts=("count", "size_bytes", "total_ns", "exposed_ns"),
)
GROUP_TIMES = sums_part("group_times", GroupTime, key=("group", "messages"), amounts=("total_ns", "exposed_ns"))
