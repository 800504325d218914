"""What is kept of communication within one rank's layers: sums by module, and what all-to-alls bring to experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tracekit.analysis.communication.parts import merge_sums
from tracekit.model.communication import GroupKey
from tracekit.model.summary import Part

__all__ = ["EXPERT_EXCHANGES", "LAYERS", "ExpertExchangeSum", "TensorSum"]


@dataclass(frozen=True, kw_only=True)
class TensorSum:
    """Communication of one rank in groups of one parallelism (tp, ep, cp) for one module, over its complete steps.

    Attributes:
        module: "" for the outermost; None where the module is not known.
        layer_ns: how long the module ran in that phase, this communication included; None where not known.
        inferred: whether the parallelism of the group was inferred.
    """

    module: str | None
    parallelism: str
    phase: str | None
    kind: str
    count: int
    size_bytes: int | None
    exposed_ns: int
    layer_ns: int | None = None
    inferred: bool = False


@dataclass(frozen=True, kw_only=True)
class ExpertExchangeSum:
    """All-to-alls of one rank in one group and step for one module; group and module may be unknown (None).

    Their sums: what those that bring tokens to experts brought to this rank, and how long all of them were exposed.
    """

    group: GroupKey | None
    module: str | None
    step: int
    received_bytes: int
    exposed_ns: int


def _merged_layers(windows: Sequence[tuple[TensorSum, ...]]) -> tuple[TensorSum, ...]:
    amounts = ("count", "size_bytes", "exposed_ns", "layer_ns")
    rows = chain.from_iterable(windows)
    return merge_sums(rows, lambda row: (row.module, row.parallelism, row.kind, row.phase), amounts)


LAYERS: Part[tuple[TensorSum, ...]] = Part(name="layers", type=tuple[TensorSum, ...], empty=tuple, merge=_merged_layers)
EXPERT_EXCHANGES: Part[tuple[ExpertExchangeSum, ...]] = Part(
    name="expert_exchanges",
    type=tuple[ExpertExchangeSum, ...],
    empty=tuple,
    merge=lambda windows: tuple(chain.from_iterable(windows)),
)
