"""Names of the spans that the capture puts into a trace and the analysis looks for."""

from __future__ import annotations

__all__ = ["DATA_SPAN", "LABEL_PREFIX", "WAIT_SPAN"]

LABEL_PREFIX = "tracekit."
WAIT_SPAN = "tracekit.wait"
"""Around every blocking wait on communication."""
DATA_SPAN = "tracekit.data"
"""Around the wrapped data iterator."""
