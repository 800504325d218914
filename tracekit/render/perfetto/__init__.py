"""Perfetto's native trace format: what `tracekit merge` writes."""

import os
from contextlib import ExitStack

# The generated code of perfetto asks for protobuf 6.31, with which it was generated. It works with 5.29 as well,
# which other packages of a training image may need. So protobuf does not compare the two while the code is imported.
_UNCHECKED = "TEMPORARILY_DISABLE_PROTOBUF_VERSION_CHECK"
with ExitStack() as _after:
    if _UNCHECKED not in os.environ:
        os.environ[_UNCHECKED] = "true"
        _after.callback(os.environ.pop, _UNCHECKED)
    from tracekit.render.perfetto.writer import PerfettoFormat, RankTraceWriter

__all__ = ["PerfettoFormat", "RankTraceWriter"]
