"""Which all-gathers bring back parameters in a backward pass that FSDP freed after the forward pass.

FSDP1 and FSDP2 have a setting that keeps the parameters. ZeRO has none, so its gathers are left out.
"""

from __future__ import annotations

import numpy as np

from tracekit.analysis.events.phases import PHASES, PhaseTimeline
from tracekit.analysis.events.strategies import strategies_of
from tracekit.analysis.fsdp.parts import FsdpRegathers
from tracekit.analysis.fsdp.per_rank.labels import fsdp_labels
from tracekit.analysis.timeline.lanes import Lanes
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, DecodedTrace

__all__ = ["fsdp_regathers"]


def fsdp_regathers(trace: DecodedTrace, lanes: Lanes, phases: PhaseTimeline) -> FsdpRegathers:
    """Return the all-gathers that FSDP labels, by the phase of their launch."""
    communication = lanes.communication_events
    gathers = communication.kind == KINDS.index("all_gather")
    if not gathers.any() or {"fsdp1", "fsdp2"}.isdisjoint(strategies_of(trace)[0]):
        return FsdpRegathers.empty()
    labelled = fsdp_labels(trace.events).around(trace.events, communication) != ABSENT
    again = gathers & labelled & (phases.at(communication.launch_ns) == PHASES.index("backward"))
    return FsdpRegathers(launch_ns=np.sort(communication.launch_ns[again]))
