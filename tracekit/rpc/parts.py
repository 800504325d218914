"""What is kept of one rank's remote calls."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tracekit.model.metadata import RpcUse
from tracekit.model.summary import Part

__all__ = ["BACKWARD_BEGINS", "REMOTE_CALLS"]


def _merged(windows: Sequence[RpcUse | None]) -> RpcUse | None:
    """Return all windows of one worker as one."""
    uses = [window for window in windows if window is not None]
    if not uses:
        return None
    return msgspec.structs.replace(
        uses[0],
        calls=[call for use in uses for call in use.calls],
        services=[service for use in uses for service in use.services],
        waits=[wait for use in uses for wait in use.waits],
        results=list({result.key: result for use in uses for result in use.results}.values()),
        optimizers=list({optimizer.number: optimizer for use in uses for optimizer in use.optimizers}.values()),
    )


def _all_begins(windows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted(begin_ns for window in windows for begin_ns in window))


REMOTE_CALLS: Part[RpcUse | None] = Part(name="remote_calls", type=RpcUse | None, empty=lambda: None, merge=_merged)
BACKWARD_BEGINS: Part[tuple[int, ...]] = Part(
    name="backward_begins", type=tuple[int, ...], empty=tuple, merge=_all_begins
)
"""When backward passes began, on the rank's wall clock, ascending; kept of ranks with remote calls alone."""
