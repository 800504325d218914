"""Perfetto's native trace format: what `tracekit merge` writes."""

from tracekit.render.perfetto.writer import PerfettoTrack, RankTraceWriter, write_header

__all__ = ["PerfettoTrack", "RankTraceWriter", "write_header"]
