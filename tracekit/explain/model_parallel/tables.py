"""Which columns the tables of communication within layers have, and what is kept of each rank for them.

Layers communicate for tensor, expert and context parallelism. A rank keeps sums by module, and what all-to-alls bring
to its experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from tracekit.model.communication import DTYPES, GroupKey
from tracekit.model.summary import Part, sums_part
from tracekit.model.table import RANK, Column, Display, Table

_TENSOR_MODULE = Column("module", "str?", "", 'Name below the outermost, which is ""; null: no module is known.')
_TENSOR_PARALLELISM = Column("parallelism", "str", "", "Of the group: tp, ep or cp.")
_TENSOR_PHASE = Column("phase", "str?", "", "forward, backward or optimizer, by its launch.")
_LAYER_SHARE = Column("layer_share", "float?", "", "exposed_ns over layer_ns; null: that is not known.", form="share")
_INFERRED = Column("inferred", "bool", "", "That the group is for this parallelism is inferred, not recorded.")
TENSOR = Table(
    "tensor",
    (
        RANK,
        _TENSOR_MODULE,
        _TENSOR_PARALLELISM,
        _TENSOR_PHASE,
        Column("kind", "str", "", "all_reduce, all_gather, reduce_scatter, all_to_all, ..."),
        Column("count", "int", "", "Collectives launched in complete steps."),
        Column("size_bytes", "int?", "bytes", "Sum of the full arrays; null when one is unknown."),
        Column("exposed_ns", "int", "ns", "Exposed time that is charged to it."),
        Column("layer_ns", "int?", "ns", "The module's time in that phase, this communication included."),
        _LAYER_SHARE,
        _INFERRED,
    ),
)
TENSOR_BY_MODULE = Table(
    "tensor_by_module",
    (
        _TENSOR_MODULE,
        _TENSOR_PARALLELISM,
        _TENSOR_PHASE,
        Column("kind", "str", "", "all_reduce, all_gather, ..."),
        Column("ranks", "int", "", "Ranks that take part; the means are over them and their complete steps."),
        Column("count", "float", "", "Mean number a step."),
        Column("size_bytes", "float?", "bytes", "Mean of the full arrays a step; null when one is unknown."),
        Column("exposed_ns", "float", "ns", "Mean exposed time a step."),
        Column("worst_rank", "int", "", "The rank with the most exposed time."),
        Column("worst_exposed_ns", "float", "ns", "Its exposed time a step."),
        Column("layer_ns", "float?", "ns", "Mean time a step of the module in that phase."),
        _LAYER_SHARE,
        _INFERRED,
    ),
    in_json=False,
)
TENSOR_BY_LAYER = Table(
    "tensor_by_layer",
    (
        Column("module", "str?", "", "Name, with * for a number in which several modules differ; null: not known."),
        Column("modules", "int", "", "How many modules these are, over which the sums are."),
        _TENSOR_PARALLELISM,
        _TENSOR_PHASE,
        Column("kind", "str", "", "all_reduce, all_gather, ..."),
        Column("count", "float", "", "Mean number a step, mean over ranks."),
        Column("size_bytes", "float?", "bytes", "Mean of the full arrays a step; null when one is unknown."),
        Column("exposed_ns", "float", "ns", "Mean exposed time a step."),
        Column("layer_ns", "float?", "ns", "Mean time a step of the modules in that phase."),
        _LAYER_SHARE,
        Column("worst_module", "str?", "", "The module with the most exposed time."),
        Column("worst_exposed_ns", "float", "ns", "Its exposed time a step."),
        _INFERRED,
    ),
    Display(
        "Communication within layers, the most exposed first (ms a step, mean)",
        "module=name | for=parallelism | kind | phase | inferred? | count | size_bytes | exposed_ns "
        "| of layer=layer_share",
        most=12,
        bars="exposed_ns",
    ),
    in_json=False,
)
EXPERT_LOAD = Table(
    "expert_load",
    (
        Column("group", "int?", "", "Index into `groups`; null: not known, and the present ranks are compared."),
        Column("module", "str?", "", "The layer whose all-to-alls these are; null: no module is known."),
        RANK,
        Column("steps", "int", "", "Complete steps with exchanges of tokens, over which the means are."),
        Column("received_bytes", "float?", "bytes", "Mean a step of what all-to-alls bring to it; null: not known."),
        Column(
            "compute_ns",
            "float?",
            "ns",
            "Mean a step of what the experts compute, at the pace of the other ranks: without sizes, the load is "
            "estimated from it; null: sizes are known.",
        ),
        Column("received_share", "float?", "", "Of what the group's present ranks receive; null: nothing."),
        Column("ratio", "float?", "", "To the mean of the group's other ranks; null: there is none.", form="factor"),
    ),
    Display(
        "Load of experts over all layers (a step, mean; compute in ms)",
        "rank | received_bytes? | compute_ns? | to mean of others=ratio | most in layer=layer?",
        most=8,
    ),
)
_DIRECTION = Column("direction", "str", "", "dispatch: tokens to the experts; combine: back from them.")
_EXCHANGE_PHASE = Column("phase", "str?", "", "forward, backward or optimizer, by its launch.")
_MICROBATCH = Column("microbatch", "int?", "", "Its number in the pipeline's labels; null: there is none.")
EXPERT_COMMUNICATION = Table(
    "expert_communication",
    (
        RANK,
        Column("group", "int?", "", "Index into `groups`; null: not known."),
        _DIRECTION,
        _EXCHANGE_PHASE,
        _MICROBATCH,
        Column("count", "int", "", "Kernels or all-to-alls launched in complete steps, with notifications."),
        Column("size_bytes", "int?", "bytes", "Sum of the full arrays; null when one is unknown."),
        Column("total_ns", "int", "ns", "Time covered by these events. Rows may overlap."),
        Column("overlapped_ns", "int", "ns", "The part of it that compute covers."),
        Column("exposed_ns", "int", "ns", "Exposed time that is charged to it."),
    ),
)
EXPERT_COMMUNICATION_MEANS = Table(
    "expert_communication_means",
    (
        _DIRECTION,
        _EXCHANGE_PHASE,
        _MICROBATCH,
        Column("ranks", "int", "", "Ranks that take part; the means are over them and their complete steps."),
        Column("count", "float", "", "Mean number a step."),
        Column("size_bytes", "float?", "bytes", "Mean of the full arrays a step; null when one is unknown."),
        Column("total_ns", "float", "ns", "Mean time a step."),
        Column("overlapped_ns", "float", "ns", "Mean time a step that compute covers."),
        Column("exposed_ns", "float", "ns", "Mean exposed time a step."),
        Column("worst_rank", "int", "", "The rank with the most exposed time."),
        Column("worst_exposed_ns", "float", "ns", "Its exposed time a step."),
    ),
    Display(
        "Tokens to experts and back (ms a step, mean over the ranks that take part)",
        "direction | phase | microbatch? | count | size_bytes | total_ns | hidden={overlapped_ns%total_ns} "
        "| exposed_ns | {worst_rank}: {worst_exposed_ns}",
        most=16,
    ),
    in_json=False,
)

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


LAYERS = sums_part(
    "layers",
    TensorSum,
    key=("module", "parallelism", "kind", "phase"),
    amounts=("count", "size_bytes", "exposed_ns", "layer_ns"),
)
EXPERT_EXCHANGES: Part[tuple[ExpertExchangeSum, ...]] = Part(
    name="expert_exchanges",
    type=tuple[ExpertExchangeSum, ...],
    empty=tuple,
    merge=lambda windows: tuple(chain.from_iterable(windows)),
)
EXPERT_COMMUNICATION_SUMS = sums_part(
    "expert_communication",
    ExpertCommunicationSum,
    key=("group", "direction", "phase", "microbatch"),
    amounts=("count", "size_bytes", "total_ns", "overlapped_ns", "exposed_ns"),
)
