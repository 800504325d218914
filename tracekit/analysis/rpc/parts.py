"""What is kept of one rank's remote calls."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tracekit.model.metadata import RpcUse
from tracekit.model.summary import Part

__all__ = ["REMOTE_CALLS"]


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
    )


REMOTE_CALLS: Part[RpcUse | None] = Part(name="remote_calls", type=RpcUse | None, empty=lambda: None, merge=_merged)
