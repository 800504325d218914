"""The summary of a rank of whose time nothing is known, or nothing that can be compared."""

from __future__ import annotations

from dataclasses import replace

from tracekit.analysis.configuration.parts import CONFIGURATION
from tracekit.analysis.sections import ALL_PARTS
from tracekit.analysis.step_time.parts import MEMORY
from tracekit.model.collectives import Collectives
from tracekit.model.messages import Messages
from tracekit.model.summary import RankSummary

_OF_METADATA = (CONFIGURATION, MEMORY)  # parts that need no times

__all__ = ["without_times"]


def without_times(summary: RankSummary, reason: str) -> RankSummary:
    """Return the summary without all that depends on times. `reason` completes "its times are n/a: "."""
    return replace(
        summary,
        unmeasured=reason,
        steps=(),
        left_out=(),
        collectives=Collectives.empty(),
        messages=Messages.empty(),
        parts={
            name: value if ALL_PARTS[name] in _OF_METADATA else ALL_PARTS[name].empty()
            for name, value in summary.parts.items()
        },
    )
