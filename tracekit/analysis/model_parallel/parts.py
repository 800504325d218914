"""What is kept of communication within one rank's layers: sums by module, and what all-to-alls bring to experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tracekit.analysis.communication.parts import merge_sums
from tracekit.model.communication import DTYPES, GroupKey
from tracekit.model.summary import Part

__all__ = [
    "COUNT_DTYPES",
    "EXPERT_COMMUNICATION",
    "EXPERT_EXCHANGES",
    "LAYERS",
    "ExpertCommunicationSum",
    "ExpertExchangeSum",
    "TensorSum",
]

COUNT_DTYPES = tuple(DTYPES.index(name) for name in ("int32", "int64"))
"""Of all-to-alls that bring numbers of tokens, not tokens."""


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

    Their sums: what those that bring tokens to experts brought to this rank, and for how long no compute covered them.
    """

    group: GroupKey | None
    module: str | None
    step: int
    received_bytes: int
    uncovered_ns: int


@dataclass(frozen=True, kw_only=True)
class ExpertCommunicationSum:
    """What brings tokens of one rank to experts, or takes them back, over its complete steps.

    Attributes:
        direction: "dispatch" to the experts, "combine" from them.
        microbatch: its number in the pipeline's labels; None where there is none.
        count: kernels, or all-to-alls; the notification before an exchange is a kernel of its own.
        size_bytes: of the full arrays; None when one is not known.
        total_ns: the union of their times.
        overlapped_ns: the part of it that compute covers.
        exposed_ns: what is charged to them of the exposed time.
    """

    group: GroupKey | None
    direction: str
    phase: str | None
    microbatch: int | None
    count: int
    size_bytes: int | None
    total_ns: int
    overlapped_ns: int
    exposed_ns: int


def _merged_expert_communication(
    windows: Sequence[tuple[ExpertCommunicationSum, ...]],
) -> tuple[ExpertCommunicationSum, ...]:
    amounts = ("count", "size_bytes", "total_ns", "overlapped_ns", "exposed_ns")
    rows = chain.from_iterable(windows)
    return merge_sums(rows, lambda row: (row.group, row.direction, row.phase, row.microbatch), amounts)


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
EXPERT_COMMUNICATION: Part[tuple[ExpertCommunicationSum, ...]] = Part(
    name="expert_communication",
    type=tuple[ExpertCommunicationSum, ...],
    empty=tuple,
    merge=_merged_expert_communication,
)
