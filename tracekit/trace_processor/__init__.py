"""Query traces with PerfettoSQL, by whichever trace processor is available.

tracekit defines views over its merged traces: `views.sql` of ranks, `run_views.sql` of the run as a whole,
`kernel_views.sql` of what ran on devices.
"""

from tracekit.trace_processor.choice import VARIABLE, open_trace_processor
from tracekit.trace_processor.processor import Answer, Row, TraceProcessor, views_sql

__all__ = ["VARIABLE", "Answer", "Row", "TraceProcessor", "open_trace_processor", "views_sql"]
