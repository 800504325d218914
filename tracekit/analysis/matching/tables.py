"""The table of matched messages."""

from tracekit.analysis.table import Column, Table

__all__ = ["POINT_TO_POINT"]

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
