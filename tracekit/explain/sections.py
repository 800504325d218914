"""All sections of a report, and the parts of each rank that they need. A new analysis is added to this list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracekit.explain.attempts import ATTEMPTS_SECTION
from tracekit.explain.communication.sections import COLLECTIVES_SECTION, DIMENSIONS_SECTION, OVERLAP_SECTION
from tracekit.explain.communication.servers import SERVERS_SECTION
from tracekit.explain.configuration import CONFIGURATION, CONFIGURATION_SECTION
from tracekit.explain.ddp.buckets import BUCKETS_SECTION
from tracekit.explain.diagnosis.diagnosis import CRITICAL_PATH_SECTION, DIAGNOSIS_SECTION
from tracekit.explain.fsdp.units import FSDP_SECTION
from tracekit.explain.kernels.sections import KERNELS_SECTION
from tracekit.explain.model_parallel.sections import TENSOR_SECTION
from tracekit.explain.pauses.pauses import PAUSES_SECTION
from tracekit.explain.pauses.tables import PAUSE_TIMES
from tracekit.explain.pipeline.sections import PIPELINE_SECTION
from tracekit.explain.pipeline.tables import ACTIONS
from tracekit.explain.run_tables import FINDINGS, GROUPS, NOTES, RUN
from tracekit.explain.section import Section
from tracekit.explain.step_time.sections import BREAKDOWN_SECTION, MEMORY_SECTION, PHASES_SECTION, ROOFLINE_SECTION
from tracekit.explain.step_time.tables import NAMED_WAITS, RECORDING_COST, NamedWait
from tracekit.explain.stragglers.host_causes import HOST_TIMES
from tracekit.explain.stragglers.stragglers import STRAGGLERS_SECTION
from tracekit.explain.whatif.sections import WHATIF_SECTION
from tracekit.job.clocks.measured import CLOCK
from tracekit.job.messages import POINT_TO_POINT
from tracekit.model.summary import Part
from tracekit.model.table import Table
from tracekit.rank.recorded_steps import FLIGHT_RECORDER, RecordedSteps
from tracekit.rpc.section import RPC_SECTION

# Findings of equal severity and saving are listed in this order.
_LISTED: tuple[Section[Any], ...] = (
    BREAKDOWN_SECTION,
    STRAGGLERS_SECTION,
    PHASES_SECTION,
    PAUSES_SECTION,
    OVERLAP_SECTION,
    COLLECTIVES_SECTION,
    PIPELINE_SECTION,
    BUCKETS_SECTION,
    SERVERS_SECTION,
    RPC_SECTION,
    DIMENSIONS_SECTION,
    ROOFLINE_SECTION,
    FSDP_SECTION,
    TENSOR_SECTION,
    MEMORY_SECTION,
    KERNELS_SECTION,
    CONFIGURATION_SECTION,
    CRITICAL_PATH_SECTION,
    DIAGNOSIS_SECTION,
    WHATIF_SECTION,
    ATTEMPTS_SECTION,
)

SECTIONS: dict[str, Section[Any]] = {section.name: section for section in _LISTED}
"""The sections by name."""

# What every run needs, whichever sections are asked for.
_ALWAYS_KEPT: tuple[Part[Any], ...] = (
    CONFIGURATION,  # the headline, and `tracekit info`
    ACTIONS,  # the stages of pipelines that are inferred
    *(PAUSE_TIMES, HOST_TIMES),  # which steps are longer for a known reason
    FLIGHT_RECORDER,  # `joins` of the JSON result
    RECORDING_COST,  # the warning that recording distorts
    *(part for section in _LISTED for part in section.notes_read),
)


def _named_waits(recorded: RecordedSteps) -> tuple[NamedWait, ...]:
    return tuple(wait for section in _LISTED if section.waits is not None for wait in section.waits(recorded))


_MAKER_OF_PART: dict[Part[Any], Callable[[RecordedSteps], Any]] = {
    **{part: make for section in _LISTED for part, make in section.keeps.items()},
    NAMED_WAITS: _named_waits,
}

ALL_PARTS: dict[str, Part[Any]] = {part.name: part for part in _MAKER_OF_PART}
"""The parts by name."""

TABLES: tuple[Table, ...] = (
    *(RUN, FINDINGS, NOTES, GROUPS, CLOCK, POINT_TO_POINT),
    *(table for section in _LISTED for table in section.tables),
)
"""The tables that every run has, and those of the sections."""


def parts_for(wanted: frozenset[str] | None) -> dict[Part[Any], Callable[[RecordedSteps], Any]]:
    """Return the parts that the `wanted` sections read (None: all sections), and the functions that make them."""
    names = SECTIONS if wanted is None else wanted
    read = {part for name in names for part in SECTIONS[name].reads} | set(_ALWAYS_KEPT)
    return {part: make for part, make in _MAKER_OF_PART.items() if part in read}
