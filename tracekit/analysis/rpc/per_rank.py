"""How long one rank's steps wait for remote calls."""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.analysis.rpc.waits import blocked_time, complete_time
from tracekit.analysis.step_time.parts import NamedWait
from tracekit.model.metadata import RpcUse
from tracekit.model.summary import StepParts

__all__ = ["WHAT", "rpc_waits"]

WHAT = "remote calls"


def rpc_waits(use: RpcUse | None, steps: Sequence[StepParts]) -> tuple[NamedWait, ...]:
    """Return the time in the complete steps in which the training thread was blocked in a wait for remote calls."""
    if use is None:
        return ()
    return (NamedWait(what=WHAT, total_ns=(blocked_time(use) & complete_time(steps)).len_ns),)
