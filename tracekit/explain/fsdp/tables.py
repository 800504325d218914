"""Which columns the tables of FSDP's units have, and what is kept of each rank's units for them.

A rank keeps sums by module and phase, each all-gather, and which all-gathers come again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.events import Int32, Int64
from tracekit.model.summary import sums_part, table_part
from tracekit.model.table import RANK, Column, Display, Table

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


@dataclass(frozen=True, kw_only=True)
class FsdpSum:
    """Communication of one rank for one module under FSDP, by kind and phase, over its complete steps.

    Attributes:
        module: "" for the outermost; None where the module is not known.
        unit_bytes: unsharded parameters of the module.
        shards: how many ranks take part; None where not known.
        ahead_count: all-gathers of which it is known how long before their use they were issued.
        ahead_ns: the sum of these times.
    """

    module: str | None
    unit_bytes: int | None
    shards: int | None
    phase: str | None
    kind: str
    count: int
    size_bytes: int | None
    exposed_ns: int
    ahead_count: int
    ahead_ns: int


@dataclass(frozen=True, kw_only=True, eq=False)
class FsdpGathers(Columnar):
    """n all-gathers of one rank in complete steps, in the order in which their modules are used.

    Attributes:
        step: int64 [n].
        module: object [n], names.
        phase: int32 [n], of the use, index into `PHASES` or -1.
        ahead: int64 [n], of how many modules compute was launched between issue and use; on a CPU rank how many
            modules came to use in between.
        size_bytes: int64 [n].
        transfer_ns: int64 [n], start to end on the device; on a CPU rank, of Gloo's span.
        wait_ns: int64 [n], how long launched compute waited for it.
        span_ns: int64 [n], from the first compute of the module to where that of the next one could begin; -1 for the
            last of a step.
        compute_ns: int64 [n], how much of that time is compute; for the last of a step, until the step's end.
        busy_ns: int64 [n], how long the stream of all-gathers does other work from that first compute to that of the
            next module.
        drain_ns: int64 [n], from the first compute of the last module of a step until the stream is done; -1 for other
            modules.
    """

    step: Int64
    module: np.ndarray
    phase: Int32
    ahead: Int64
    size_bytes: Int64
    transfer_ns: Int64
    wait_ns: Int64
    span_ns: Int64
    compute_ns: Int64
    busy_ns: Int64
    drain_ns: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class FsdpRegathers(Columnar):
    """n all-gathers in backward passes, of parameters that were freed after the forward pass.

    Attributes:
        launch_ns: int64 [n], as in `Collectives`.
    """

    launch_ns: Int64


FSDP_UNITS = sums_part(
    "fsdp_units",
    FsdpSum,
    key=("module", "kind", "phase"),
    amounts=("count", "size_bytes", "exposed_ns", "ahead_count", "ahead_ns"),
)
FSDP_REGATHERS = table_part("fsdp_regathers", FsdpRegathers)
FSDP_GATHERS = table_part("fsdp_gathers", FsdpGathers)
