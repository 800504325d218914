"""The summary of a rank of whose time nothing is known, or nothing that can be compared."""

from __future__ import annotations

from dataclasses import replace

from tracekit.analysis.configuration.parts import CONFIGURATION
from tracekit.analysis.sections import ALL_PARTS
from tracekit.analysis.step_time.parts import MEMORY
from tracekit.analysis.timeline.lanes import Lanes
from tracekit.model.collectives import Collectives
from tracekit.model.events import DecodedTrace
from tracekit.model.messages import Messages
from tracekit.model.summary import RankSummary

_OF_METADATA = (CONFIGURATION, MEMORY)  # parts that need no times

__all__ = ["nothing_ran", "without_times"]


def nothing_ran(trace: DecodedTrace, lanes: Lanes) -> str | None:
    """Return that a rank neither computes nor communicates in its recording; None if it does either.

    A process of RPC may only call others, or serve them. A rank that issues a collective may wait for it until its
    recording ends.
    """
    metadata, events = trace.header.metadata, trace.events
    if not lanes.is_empty or (metadata is not None and metadata.rpc is not None):
        return None
    if events.duration_ns[events.collective_arguments.row].any():
        return None
    return "it has no kernel, operator or collective that took any time"


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
