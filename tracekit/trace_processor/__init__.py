"""Perfetto's trace processor, whichever is at hand: a trace in, rows of PerfettoSQL out.

`views.sql` holds the views that tracekit adds to its merged traces.
"""

from tracekit.trace_processor.choice import VARIABLE, open_trace_processor
from tracekit.trace_processor.processor import Answer, Row, TraceProcessor
from tracekit.trace_processor.views import views_sql

__all__ = ["VARIABLE", "Answer", "Row", "TraceProcessor", "open_trace_processor", "views_sql"]
