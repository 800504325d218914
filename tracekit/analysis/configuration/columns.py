"""The table of settings."""

from tracekit.analysis.table import Column, Table

__all__ = ["SETTINGS"]

SETTINGS = Table(
    "configuration",
    (
        Column("component", "str", "", "ddp, fsdp1, fsdp2, zero, pipeline, compile or precision."),
        Column("modules", "list[str]", "", 'Names of the modules for which it holds, "" is the outermost; none: all.'),
        Column("setting", "str", "", "The name under which a program sets it."),
        Column("value", "value?", "", "A number, text or boolean; null: None, that is not set."),
        Column("ranks", "list[int]", "", "The ranks that have this value."),
    ),
)
