"""The section on FSDP and ZeRO."""

from __future__ import annotations

from tracekit.analysis.communication.parts import COMMUNICATION
from tracekit.analysis.configuration.parts import CONFIGURATION
from tracekit.analysis.fsdp import columns
from tracekit.analysis.fsdp.parts import (
    FSDP_GATHERS,
    FSDP_REGATHERS,
    FSDP_UNITS,
    FsdpGathers,
    FsdpRegathers,
    FsdpSum,
)
from tracekit.analysis.fsdp.per_rank.gathers import fsdp_gathers
from tracekit.analysis.fsdp.per_rank.regathers import fsdp_regathers
from tracekit.analysis.fsdp.per_rank.unit_sums import fsdp_sums
from tracekit.analysis.fsdp.units import Fsdp, fsdp
from tracekit.analysis.section import Section
from tracekit.analysis.timeline.recorded_steps import RecordedSteps

__all__ = ["FSDP_SECTION"]


def _units(recorded: RecordedSteps) -> tuple[FsdpSum, ...]:
    return tuple(fsdp_sums(recorded.trace, recorded.lanes, recorded.phases, recorded.steps))


def _gathers(recorded: RecordedSteps) -> FsdpGathers:
    return fsdp_gathers(recorded.trace, recorded.lanes, recorded.phases, recorded.steps)


def _regathers(recorded: RecordedSteps) -> FsdpRegathers:
    return fsdp_regathers(recorded.trace, recorded.lanes, recorded.phases)


FSDP_SECTION: Section[Fsdp] = Section(
    name="fsdp",
    reads=(FSDP_UNITS, FSDP_GATHERS, COMMUNICATION, CONFIGURATION),
    keeps={FSDP_UNITS: _units, FSDP_GATHERS: _gathers, FSDP_REGATHERS: _regathers},
    analyze=lambda given: fsdp(given.run),
    tables=(columns.FSDP, columns.FSDP_BY_MODULE, columns.FSDP_BY_LAYER, columns.FSDP_PREFETCH),
)
