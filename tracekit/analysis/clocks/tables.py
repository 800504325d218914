"""The table of clocks."""

from tracekit.analysis.table import RANK, Column, Table

__all__ = ["CLOCK"]

CLOCK = Table(
    "clock",
    (
        RANK,
        Column(
            "method",
            "str",
            "",
            "probe: measured while recording; host: of the reference's host; wall: wall clocks agree within the error; "
            "collectives: fitted to their ends; messages: bounded by them; none.",
        ),
        Column("offset_ns", "int", "ns", "This rank's clock minus the reference's; t_run = t_rank - offset."),
        Column("drift_ppm", "float?", "ppm", "Change of the offset over time; null when unknown."),
        Column("error_ns", "int?", "ns", "Half-width of the uncertainty anywhere in the recording; null when unknown."),
        Column("at_ns", "int", "ns", "When the offset holds, on the rank's clock: a drift counts from there."),
        Column("jump_ns", "int?", "ns", "By how much it jumps within the recording: such a rank is not compared."),
    ),
)
