"""Perfetto's native trace format: what `tracekit merge` writes."""

from tracekit.render.perfetto.nesting import assign_lanes
from tracekit.render.perfetto.writer import PerfettoTrack, RankTraceWriter, write_header

__all__ = ["PerfettoTrack", "RankTraceWriter", "assign_lanes", "write_header"]
