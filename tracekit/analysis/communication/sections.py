"""Sections on communication: overlap, collectives, dimensions of the mesh."""

from __future__ import annotations

from tracekit.analysis.communication import columns
from tracekit.analysis.communication.collectives import CollectiveTimes, collective_times
from tracekit.analysis.communication.mesh_dimensions import MeshDimensions, mesh_dimensions
from tracekit.analysis.communication.overlap import Overlap, overlap
from tracekit.analysis.communication.parts import COMMUNICATION, IN_FLIGHT_TIMES, CommunicationSum, InFlightTime
from tracekit.analysis.communication.per_rank.in_flight_times import in_flight_times
from tracekit.analysis.communication.per_rank.kind_sums import communication_sums
from tracekit.analysis.section import Section
from tracekit.analysis.timeline.parts import FLIGHT_RECORDER
from tracekit.analysis.timeline.recorded_steps import RecordedSteps

__all__ = ["COLLECTIVES_SECTION", "DIMENSIONS_SECTION", "OVERLAP_SECTION"]


def _communication(recorded: RecordedSteps) -> tuple[CommunicationSum, ...]:
    return tuple(communication_sums(recorded.lanes, recorded.phases, recorded.steps))


def _in_flight_times(recorded: RecordedSteps) -> tuple[InFlightTime, ...]:
    return tuple(in_flight_times(recorded.lanes, recorded.steps))


OVERLAP_SECTION: Section[Overlap] = Section(
    name="overlap",
    reads=(COMMUNICATION,),
    keeps={COMMUNICATION: _communication},
    analyze=lambda given: overlap(given.run),
    tables=(columns.COMMUNICATION, columns.COMMUNICATION_BY_KIND),
)
COLLECTIVES_SECTION: Section[CollectiveTimes] = Section(
    name="collectives",
    keeps={FLIGHT_RECORDER: lambda recorded: recorded.lanes.flight_recorder},
    analyze=lambda given: collective_times(given.run, given.links),
    tables=(columns.COLLECTIVES,),
)
DIMENSIONS_SECTION: Section[MeshDimensions] = Section(
    name="dimensions",
    reads=(IN_FLIGHT_TIMES,),
    keeps={IN_FLIGHT_TIMES: _in_flight_times},
    analyze=lambda given: mesh_dimensions(given.run),
    tables=(columns.DIMENSIONS, columns.DIMENSIONS_BY_NAME),
)
