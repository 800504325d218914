"""What is kept of one rank's FSDP units: sums by module and phase, each all-gather, and which come again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from tracekit.analysis.communication.parts import merge_sums
from tracekit.model.columnar import Columnar
from tracekit.model.events import Int32, Int64
from tracekit.model.summary import Part

__all__ = ["FSDP_GATHERS", "FSDP_REGATHERS", "FSDP_UNITS", "FsdpGathers", "FsdpRegathers", "FsdpSum"]


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


def _merged_units(windows: Sequence[tuple[FsdpSum, ...]]) -> tuple[FsdpSum, ...]:
    amounts = ("count", "size_bytes", "exposed_ns", "ahead_count", "ahead_ns")
    return merge_sums(chain.from_iterable(windows), lambda row: (row.module, row.kind, row.phase), amounts)


FSDP_UNITS: Part[tuple[FsdpSum, ...]] = Part(
    name="fsdp_units", type=tuple[FsdpSum, ...], empty=tuple, merge=_merged_units
)
FSDP_REGATHERS = Part(
    name="fsdp_regathers", type=FsdpRegathers, empty=FsdpRegathers.empty, merge=FsdpRegathers.concatenate
)
FSDP_GATHERS = Part(name="fsdp_gathers", type=FsdpGathers, empty=FsdpGathers.empty, merge=FsdpGathers.concatenate)
