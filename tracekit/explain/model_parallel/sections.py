"""The section on communication within layers."""

from __future__ import annotations

from tracekit.explain.model_parallel import tables
from tracekit.explain.model_parallel.expert_exchanges import expert_communication_sums, expert_exchanges
from tracekit.explain.model_parallel.layers import TensorParallel, tensor_parallel, tensor_sums
from tracekit.explain.model_parallel.tables import EXPERT_COMMUNICATION_SUMS, EXPERT_EXCHANGES, LAYERS
from tracekit.explain.section import Section

TENSOR_SECTION: Section[TensorParallel] = Section(
    name="tensor",
    reads=(LAYERS, EXPERT_EXCHANGES, EXPERT_COMMUNICATION_SUMS),
    keeps={
        LAYERS: tensor_sums,
        EXPERT_EXCHANGES: expert_exchanges,
        EXPERT_COMMUNICATION_SUMS: expert_communication_sums,
    },
    analyze=lambda given: tensor_parallel(given.run),
    tables=(
        tables.TENSOR,
        tables.TENSOR_BY_MODULE,
        tables.TENSOR_BY_LAYER,
        tables.EXPERT_LOAD,
        tables.EXPERT_COMMUNICATION,
        tables.EXPERT_COMMUNICATION_MEANS,
    ),
)
