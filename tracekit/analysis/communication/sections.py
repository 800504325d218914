"""Sections on communication: overlap, collectives, dimensions of the mesh."""

from __future__ import annotations

from tracekit.analysis.communication import columns
from tracekit.analysis.communication.collectives import CollectiveTimes, collective_times
from tracekit.analysis.communication.mesh_dimensions import MeshDimensions, mesh_dimensions
from tracekit.analysis.communication.overlap import Overlap, overlap
from tracekit.analysis.communication.parts import COMMUNICATION, TRAFFIC, CommunicationSum, TrafficTime
from tracekit.analysis.communication.per_rank.kind_sums import communication_sums
from tracekit.analysis.communication.per_rank.traffic import traffic_times
from tracekit.analysis.section import Section
from tracekit.analysis.timeline.parts import FLIGHT_RECORDER
from tracekit.analysis.timeline.recorded_steps import RecordedSteps

__all__ = ["COLLECTIVES_SECTION", "DIMENSIONS_SECTION", "OVERLAP_SECTION"]


def _communication(recorded: RecordedSteps) -> tuple[CommunicationSum, ...]:
    return tuple(communication_sums(recorded.lanes, recorded.phases, recorded.steps))


def _traffic(recorded: RecordedSteps) -> tuple[TrafficTime, ...]:
    return tuple(traffic_times(recorded.lanes, recorded.steps))


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
    reads=(TRAFFIC,),
    keeps={TRAFFIC: _traffic},
    analyze=lambda given: mesh_dimensions(given.run),
    tables=(columns.DIMENSIONS, columns.DIMENSIONS_BY_NAME),
)
