"""The section on communication within layers."""

from __future__ import annotations

from tracekit.analysis.model_parallel import columns
from tracekit.analysis.model_parallel.layers import TensorParallel, tensor_parallel
from tracekit.analysis.model_parallel.parts import (
    EXPERT_COMMUNICATION,
    EXPERT_EXCHANGES,
    LAYERS,
    ExpertCommunicationSum,
    ExpertExchangeSum,
    TensorSum,
)
from tracekit.analysis.model_parallel.per_rank.expert_communication import expert_communication_sums
from tracekit.analysis.model_parallel.per_rank.expert_exchanges import expert_all_to_alls, expert_exchanges
from tracekit.analysis.model_parallel.per_rank.layer_sums import tensor_sums
from tracekit.analysis.section import Section
from tracekit.analysis.timeline.recorded_steps import RecordedSteps

__all__ = ["TENSOR_SECTION"]


def _layers(recorded: RecordedSteps) -> tuple[TensorSum, ...]:
    return tuple(tensor_sums(recorded.trace, recorded.lanes, recorded.phases, recorded.steps))


def _exchanges(recorded: RecordedSteps) -> tuple[ExpertExchangeSum, ...]:
    return tuple(expert_exchanges(recorded.trace, recorded.lanes, recorded.once(expert_all_to_alls)))


def _expert_communication(recorded: RecordedSteps) -> tuple[ExpertCommunicationSum, ...]:
    events, all_to_alls = recorded.trace.events, recorded.once(expert_all_to_alls)
    return tuple(expert_communication_sums(events, recorded.lanes, recorded.phases, recorded.steps, all_to_alls))


TENSOR_SECTION: Section[TensorParallel] = Section(
    name="tensor",
    reads=(LAYERS, EXPERT_EXCHANGES, EXPERT_COMMUNICATION),
    keeps={LAYERS: _layers, EXPERT_EXCHANGES: _exchanges, EXPERT_COMMUNICATION: _expert_communication},
    analyze=lambda given: tensor_parallel(given.run),
    tables=(
        columns.TENSOR,
        columns.TENSOR_BY_MODULE,
        columns.TENSOR_BY_LAYER,
        columns.EXPERT_LOAD,
        columns.EXPERT_COMMUNICATION,
        columns.EXPERT_COMMUNICATION_MEANS,
    ),
)
