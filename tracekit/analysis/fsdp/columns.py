"""Tables of FSDP's units."""

from tracekit.analysis.table import RANK, Column, Display, Table

__all__ = ["FSDP", "FSDP_BY_LAYER", "FSDP_BY_MODULE", "FSDP_PREFETCH"]

_FSDP_MODULE = Column("module", "str?", "", 'Name below the outermost, which is ""; null: of no module.')
_FSDP_PHASE = Column("phase", "str?", "", "forward, backward or optimizer, by its launch.")
FSDP = Table(
    "fsdp",
    (
        RANK,
        _FSDP_MODULE,
        Column("unit_bytes", "int?", "bytes", "Unsharded parameters of the module; null without tracekit's capture."),
        Column("shard_bytes", "int?", "bytes", "This rank's part of each full array, as it travels: with padding."),
        _FSDP_PHASE,
        Column("kind", "str", "", "all_gather, reduce_scatter, all_reduce (across replicas), ..."),
        Column("count", "int", "", "Collectives launched in complete steps."),
        Column("size_bytes", "int?", "bytes", "Sum of the full arrays; null when one is unknown."),
        Column("exposed_ns", "int", "ns", "Exposed time that is charged to it."),
        Column("prefetch_ns", "int?", "ns", "Mean host time from issue to need of an all-gather; null when unknown."),
    ),
)
FSDP_BY_MODULE = Table(
    "fsdp_by_module",
    (
        _FSDP_MODULE,
        _FSDP_PHASE,
        Column("kind", "str", "", "all_gather, reduce_scatter, ..."),
        Column("ranks", "int", "", "Ranks that take part; the means are over them and their complete steps."),
        Column("count", "float", "", "Mean number a step."),
        Column("size_bytes", "float?", "bytes", "Mean of the full arrays a step; null when one is unknown."),
        Column("exposed_ns", "float", "ns", "Mean exposed time a step."),
        Column("prefetch_ns", "float?", "ns", "Mean host time from issue to need of an all-gather; null when unknown."),
        Column("worst_rank", "int", "", "The rank with the most exposed time."),
        Column("worst_exposed_ns", "float", "ns", "Its exposed time a step."),
    ),
    in_json=False,
)
FSDP_BY_LAYER = Table(
    "fsdp_by_layer",
    (
        Column("module", "str?", "", "Name, with * for a number in which several modules differ; null: of none."),
        Column("modules", "int", "", "How many modules these are, over which the sums are."),
        _FSDP_PHASE,
        Column("kind", "str", "", "all_gather, reduce_scatter, ..."),
        Column("count", "float", "", "Mean number a step."),
        Column("size_bytes", "float?", "bytes", "Mean of the full arrays a step; null when one is unknown."),
        Column("exposed_ns", "float", "ns", "Mean exposed time a step."),
        Column("prefetch_ns", "float?", "ns", "Mean host time from issue to need of an all-gather; null when unknown."),
        Column("worst_module", "str?", "", "The module with the most exposed time."),
        Column("worst_exposed_ns", "float", "ns", "Its exposed time a step."),
    ),
    Display(
        "Modules of FSDP and ZeRO, the most exposed first (ms a step, mean over ranks)",
        "module=name | kind | phase | count | size_bytes | exposed_ns | issue to use=prefetch_ns",
        most=12,
        bars="exposed_ns",
    ),
    in_json=False,
)
FSDP_PREFETCH = Table(
    "fsdp_prefetch",
    (
        Column("phase", "str", "", "forward or backward."),
        Column("asked_ahead", "int", "", "How many modules ahead all-gathers are issued now: the median."),
        Column("ahead", "int", "", "How many modules ahead all-gathers would be issued explicitly."),
        Column("wait_ns", "float", "ns", "How long compute waits for all-gathers now: mean a step over ranks."),
        Column("predicted_wait_ns", "float", "ns", "The same, replayed with all-gathers issued ahead."),
        Column("saving_ns", "float", "ns", "What the slowest rank's step would be shorter by, mean over steps."),
        Column("error_ns", "float?", "ns", "Two standard errors over the steps; null: there is one step."),
        Column("memory_bytes", "int?", "bytes", "Of parameters gathered ahead, at most; null: sizes are not known."),
        Column("modules", "list[str]", "", "Names of those that wait, the longest first."),
    ),
)
