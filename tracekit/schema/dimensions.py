"""Tables of communication by dimension of the mesh."""

from tracekit.schema.columns import RANK, Column, Table

__all__ = ["DIMENSIONS", "DIMENSIONS_BY_NAME"]

_DIMENSION = Column(
    "dimension", "str?", "", "dp, dp_shard, tp, pp ...: name in the mesh, else what its groups are for; null: unknown."
)
_INFERRED = Column("inferred", "bool", "", "Whether that was concluded from names, members or messages of groups.")
DIMENSIONS = Table(
    "dimensions",
    (
        RANK,
        _DIMENSION,
        _INFERRED,
        Column("groups", "list", "", "Ids in `groups` of those that the rank communicates in."),
        Column("group_size", "int?", "", "Ranks of the largest of them; null when unknown."),
        Column("hosts", "int?", "", "Hosts that the widest of them spans; null when one is unknown."),
        Column("total_ns", "int", "ns", "Time covered by its communication, messages included, in complete steps."),
        Column("exposed_ns", "int", "ns", "The part of it that no compute covers. Rows may overlap."),
        Column("charged_ns", "int", "ns", "What of that the rank waits for: the rows sum to its exposed_comm_ns."),
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
        Column("total_ns", "float", "ns", "Mean time a step that its communication covers."),
        Column("exposed_ns", "float", "ns", "Mean time of it a step that no compute covers."),
        Column("charged_ns", "float", "ns", "Mean time a step that ranks wait for it."),
        Column("share", "float", "ratio", "Charged time of all ranks by the time of their steps."),
        Column("waiting_ratio", "float?", "ratio", "Of the time in its collectives, until the last rank arrives."),
        Column("waiting_unknown", "str?", "", "Why that ratio is null."),
        Column("worst_rank", "int", "", "The rank with the most charged time."),
        Column("worst_charged_ns", "float", "ns", "Its charged time a step."),
    ),
)
