"""The section on communication within layers."""

from __future__ import annotations

from tracekit.analysis.model_parallel import columns
from tracekit.analysis.model_parallel.layers import TensorParallel, tensor_parallel
from tracekit.analysis.model_parallel.parts import EXPERT_EXCHANGES, LAYERS, ExpertExchangeSum, TensorSum
from tracekit.analysis.model_parallel.per_rank.expert_exchanges import expert_exchanges
from tracekit.analysis.model_parallel.per_rank.layer_sums import tensor_sums
from tracekit.analysis.section import Section
from tracekit.analysis.timeline.recorded_steps import RecordedSteps

__all__ = ["TENSOR_SECTION"]


def _layers(recorded: RecordedSteps) -> tuple[TensorSum, ...]:
    return tuple(tensor_sums(recorded.trace, recorded.lanes, recorded.phases, recorded.steps))


def _exchanges(recorded: RecordedSteps) -> tuple[ExpertExchangeSum, ...]:
    return tuple(expert_exchanges(recorded.trace, recorded.lanes, recorded.phases, recorded.steps))


TENSOR_SECTION: Section[TensorParallel] = Section(
    name="tensor",
    reads=(LAYERS, EXPERT_EXCHANGES),
    keeps={LAYERS: _layers, EXPERT_EXCHANGES: _exchanges},
    analyze=lambda given: tensor_parallel(given.run),
    tables=(columns.TENSOR, columns.TENSOR_BY_MODULE, columns.TENSOR_BY_LAYER, columns.EXPERT_LOAD),
)
