"""Tables of communication, by rank and over ranks; of clocks."""

from tracekit.schema.columns import RANK, Column, Table

__all__ = ["CLOCK", "COLLECTIVES", "COMMUNICATION", "COMMUNICATION_BY_KIND", "POINT_TO_POINT"]

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
        Column("exposed_ns", "int", "ns", "The part of it that no compute covers."),
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
        Column("exposed_ns", "float", "ns", "Mean time a step that no compute covers."),
        Column("worst_rank", "int", "", "The rank with the most exposed time."),
        Column("worst_exposed_ns", "float", "ns", "Its exposed time a step."),
    ),
)
CLOCK = Table(
    "clock",
    (
        RANK,
        Column("method", "str", "", "probe: measured while recording; collectives: fitted on their ends; none."),
        Column("offset_ns", "int", "ns", "This rank's clock minus the reference's; t_run = t_rank - offset."),
        Column("drift_ppm", "float?", "ppm", "Change of the offset over time; null when unknown."),
        Column("error_ns", "int?", "ns", "Half-width of the uncertainty; null when unknown."),
        Column("at_ns", "int", "ns", "When the offset holds, on the rank's clock: a drift counts from there."),
        Column("steps", "list", "", "Other offsets later on, from_ns each: offset_ns at at_ns."),
    ),
)
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
        Column("skew_p50_ns", "int?", "ns", "Median time from the first to the last arrival; null: not significant."),
        Column("skew_max_ns", "int?", "ns", "The longest; null: below the clocks' uncertainty."),
        Column("wait_mean_ns", "int?", "ns", "Mean over ranks from the own to the last arrival; null likewise."),
        Column("transfer_p50_ns", "int", "ns", "Median time from the last arrival to the end."),
        Column("algbw_bps", "float?", "B/s", "Size by that time."),
        Column("busbw_bps", "float?", "B/s", "algbw times the factor of its kind and number of ranks (nccl-tests)."),
        Column("link_share", "float?", "ratio", "Of the bandwidth of idle links (--links); null: not measured."),
        Column("error_ns", "int?", "ns", "Uncertainty of the skew; null: clocks that cannot be compared."),
        Column("significant", "bool", "", "Whether any skew is above that uncertainty."),
    ),
)
POINT_TO_POINT = Table(
    "point_to_point",
    (
        Column("source", "int", "", "Global rank that sends."),
        Column("destination", "int", "", "Global rank that receives."),
        Column("group", "int?", "", "Id in `groups`; null for a group destroyed since."),
        Column("sends", "int", "", "Sends that the source recorded."),
        Column("receives", "int", "", "Receives that the destination recorded."),
        Column("joined", "int", "", "Sends joined to their receive."),
        Column("size_bytes", "int?", "bytes", "Sum over the sends, or the receives where these are not recorded."),
    ),
)
