"""The section on FSDP and ZeRO."""

from __future__ import annotations

from tracekit.analysis.communication.tables import COMMUNICATION_SUMS
from tracekit.analysis.configuration.tables import CONFIGURATION
from tracekit.analysis.fsdp import tables
from tracekit.analysis.fsdp.per_rank import fsdp_gathers, fsdp_regathers, fsdp_sums
from tracekit.analysis.fsdp.tables import FSDP_GATHERS, FSDP_REGATHERS, FSDP_UNITS
from tracekit.analysis.fsdp.units import Fsdp, fsdp
from tracekit.analysis.section import Section

__all__ = ["FSDP_SECTION"]


FSDP_SECTION: Section[Fsdp] = Section(
    name="fsdp",
    reads=(FSDP_UNITS, FSDP_GATHERS, COMMUNICATION_SUMS, CONFIGURATION),
    keeps={FSDP_UNITS: fsdp_sums, FSDP_GATHERS: fsdp_gathers, FSDP_REGATHERS: fsdp_regathers},
    analyze=lambda given: fsdp(given.run),
    tables=(tables.FSDP, tables.FSDP_BY_MODULE, tables.FSDP_BY_LAYER, tables.FSDP_PREFETCH),
)
