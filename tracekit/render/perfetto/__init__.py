"""Perfetto's native trace format: what `tracekit merge` writes."""

from tracekit.render.perfetto.nesting import assign_lanes
from tracekit.render.perfetto.writer import RankTraceWriter, write_header

__all__ = ["RankTraceWriter", "assign_lanes", "write_header"]
