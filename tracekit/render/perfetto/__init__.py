"""Perfetto's native trace format: what `tracekit merge` writes."""

from tracekit.render.perfetto.writer import PerfettoFormat, RankTraceWriter, write_header

__all__ = ["PerfettoFormat", "RankTraceWriter", "write_header"]
