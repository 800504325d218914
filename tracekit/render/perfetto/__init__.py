"""Perfetto's native trace format: what `tracekit merge` writes."""

from tracekit.render.perfetto.writer import PerfettoFormat, RankTraceWriter

__all__ = ["PerfettoFormat", "RankTraceWriter"]
