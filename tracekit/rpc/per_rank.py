"""How long one rank's steps wait for remote calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracekit.analysis.events.phases import PHASES, PhaseTimeline
from tracekit.analysis.step_time.parts import NamedWait
from tracekit.model.metadata import RpcUse
from tracekit.model.summary import StepParts
from tracekit.rpc.result import blocked_time, complete_time

__all__ = ["WHAT", "backward_begins", "rpc_waits"]

WHAT = "remote calls"


def rpc_waits(use: RpcUse | None, steps: Sequence[StepParts]) -> tuple[NamedWait, ...]:
    """Return the time in the complete steps in which the training thread was blocked in a wait for remote calls."""
    if use is None:
        return ()
    return (NamedWait(what=WHAT, total_ns=(blocked_time(use) & complete_time(steps)).len_ns),)


def backward_begins(use: RpcUse | None, phases: PhaseTimeline) -> tuple[int, ...]:
    """Return when the backward passes of a rank with remote calls began, ascending."""
    if use is None or not use.calls:
        return ()
    is_backward = phases.launch_phase == PHASES.index("backward")
    begins = is_backward & ~np.concatenate(([False], is_backward[:-1]))
    return tuple(phases.change_ns[begins].tolist())
