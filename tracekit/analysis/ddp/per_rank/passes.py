"""How many forward passes of DDP modules, and how many updates of parameters, the steps of one rank have.

PyTorch labels both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracekit.analysis.ddp.parts import DdpPasses
from tracekit.analysis.timeline.lanes import Lanes, complete_steps
from tracekit.model.events import DecodedTrace
from tracekit.model.summary import StepParts

__all__ = ["FORWARD_LABEL", "ddp_passes"]

FORWARD_LABEL = "DistributedDataParallel.forward"
_UPDATE = "Optimizer.step#"


def ddp_passes(trace: DecodedTrace, lanes: Lanes, steps: Sequence[StepParts]) -> DdpPasses:
    """Return the counts over the complete steps."""
    events = trace.events
    on_host = events.on_tracks(lanes.threads)
    complete = complete_steps(lanes, steps).windows

    def count(prefix: str) -> int:
        rows = np.flatnonzero(events.named(lambda name: name.startswith(prefix)) & on_host)
        window = lanes.windows.index_of(events.start_ns[rows])
        return int(complete[window[window >= 0]].sum())

    return DdpPasses(forwards=count(FORWARD_LABEL), updates=count(_UPDATE))
