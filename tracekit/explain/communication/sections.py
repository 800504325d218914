"""Sections on communication: overlap, collectives, dimensions of the mesh."""

from __future__ import annotations

from tracekit.explain.communication import tables
from tracekit.explain.communication.collectives import CollectiveTimes, collective_times
from tracekit.explain.communication.communication_sums import communication_sums, group_times
from tracekit.explain.communication.mesh_dimensions import MeshDimensions, mesh_dimensions
from tracekit.explain.communication.overlap import Overlap, overlap
from tracekit.explain.communication.tables import COMMUNICATION_SUMS, GROUP_TIMES
from tracekit.explain.section import Section
from tracekit.rank.recorded_steps import FLIGHT_RECORDER

OVERLAP_SECTION: Section[Overlap] = Section(
    name="overlap",
    reads=(COMMUNICATION_SUMS,),
    keeps={COMMUNICATION_SUMS: communication_sums},
    analyze=lambda given: overlap(given.run),
    tables=(tables.COMMUNICATION, tables.COMMUNICATION_BY_KIND),
)


COLLECTIVES_SECTION: Section[CollectiveTimes] = Section(
    name="collectives",
    keeps={FLIGHT_RECORDER: lambda recorded: recorded.lanes.flight_recorder},
    analyze=lambda given: collective_times(given.run),
    tables=(tables.COLLECTIVES,),
)


DIMENSIONS_SECTION: Section[MeshDimensions] = Section(
    name="dimensions",
    reads=(GROUP_TIMES,),
    keeps={GROUP_TIMES: group_times},
    analyze=lambda given: mesh_dimensions(given.run),
    tables=(tables.DIMENSIONS, tables.DIMENSIONS_BY_NAME),
)
