"""The section on communication within layers."""

from __future__ import annotations

from tracekit.explain.model_parallel import tables
from tracekit.explain.model_parallel.expert_exchanges import (
    expert_all_to_alls,
    expert_communication_sums,
    expert_exchanges,
)
from tracekit.explain.model_parallel.layers import TensorParallel, tensor_parallel, tensor_sums
from tracekit.explain.model_parallel.tables import (
    EXPERT_COMMUNICATION_SUMS,
    EXPERT_EXCHANGES,
    LAYERS,
    ExpertCommunicationSum,
    ExpertExchangeSum,
    TensorSum,
)
from tracekit.explain.section import Section
from tracekit.rank.recorded_steps import RecordedSteps


def _layers(recorded: RecordedSteps) -> tuple[TensorSum, ...]:
    return tuple(tensor_sums(recorded.trace, recorded.lanes, recorded.phases, recorded.steps))


def _exchanges(recorded: RecordedSteps) -> tuple[ExpertExchangeSum, ...]:
    return tuple(expert_exchanges(recorded.trace, recorded.lanes, recorded.once(expert_all_to_alls)))


def _expert_communication(recorded: RecordedSteps) -> tuple[ExpertCommunicationSum, ...]:
    events, all_to_alls = recorded.trace.events, recorded.once(expert_all_to_alls)
    return tuple(expert_communication_sums(events, recorded.lanes, recorded.phases, recorded.steps, all_to_alls))


TENSOR_SECTION: Section[TensorParallel] = Section(
    name="tensor",
    reads=(LAYERS, EXPERT_EXCHANGES, EXPERT_COMMUNICATION_SUMS),
    keeps={LAYERS: _layers, EXPERT_EXCHANGES: _exchanges, EXPERT_COMMUNICATION_SUMS: _expert_communication},
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
