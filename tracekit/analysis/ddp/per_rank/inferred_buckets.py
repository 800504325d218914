"""What PyTorch's labels show of DDP: its buckets, inferred from the all-reduces of a trace that has no bucket map.

DDP reduces the same buckets in the same order in every backward pass. It does so in hooks that run as a gradient is
accumulated. So in a trace with labels of DDP, its buckets are the all-reduces that fulfil all of these:

* they are of floating-point numbers, and issued while a gradient is accumulated;
* they are of one group;
* their sizes have the same order in most steps.

A loop that averages gradients by hand has no such label. Of the buckets only the sizes are known.

A step may have several backward passes that reduce. It has no more of them than forward passes, which tells two passes
from a bucket list with the same sizes twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tracekit.analysis.ddp.per_rank.bucket_reductions import Reductions
from tracekit.analysis.ddp.tables import DdpPasses
from tracekit.analysis.events.communication_rules import bytes_per_element
from tracekit.analysis.events.phase_evidence import AUTOGRAD_NODE_PREFIX
from tracekit.analysis.events.strategies import strategies_of
from tracekit.analysis.timeline.lanes import Lanes, complete_steps
from tracekit.model.communication import DTYPES
from tracekit.model.events import DecodedTrace, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.metadata import Bucket, DdpModule
from tracekit.model.summary import StepParts

__all__ = ["FORWARD_LABEL", "ddp_passes", "inferred_modules"]

_ACCUMULATES = f"{AUTOGRAD_NODE_PREFIX}torch::autograd::AccumulateGrad"
_FLOATING = tuple(i for i, name in enumerate(DTYPES) if "float" in name)


def inferred_modules(trace: DecodedTrace, lanes: Lanes, reductions: Reductions) -> tuple[DdpModule, ...]:
    """Return the DDP module that the all-reduces suggest, or nothing. Its `bucket_cap_bytes` is not known.

    Several modules cannot be told apart.
    """
    strategies, _ = strategies_of(trace)
    if trace.header.metadata is not None or "ddp" not in strategies:
        return ()
    events, communication, which = trace.events, lanes.communication_events, reductions.which
    accumulating = Intervals.of_events(events, events.named(_ACCUMULATES.__eq__))
    issued = accumulating.covers(communication.launch_ns[which]) & np.isin(communication.dtype[which], _FLOATING)
    if not issued.any() or len(np.unique(communication.group[which[issued]])) > 1:
        return ()
    sizes, dtypes = reductions.elements[issued], communication.dtype[which[issued]]
    window = lanes.window[which[issued]]
    forwards = _forwards(trace, lanes)
    sequences = Counter(
        (tuple(zip(sizes[here].tolist(), dtypes[here].tolist(), strict=True)), int(forwards[window[here][0]]))
        for here in _each(window)
    )
    ((usual, passes), count), *_ = sequences.most_common(1)
    if 2 * count <= sequences.total():
        return ()
    buckets = [
        Bucket(index=i, size_bytes=size * (bytes_per_element(DTYPES[dtype]) or 1), dtype=DTYPES[dtype], parameters=[])
        for i, (size, dtype) in enumerate(_repeated_part(usual, passes))
    ]
    return (
        DdpModule(
            module="DistributedDataParallel",
            bucket_cap_bytes=None,
            static_graph=False,
            find_unused=False,
            rebuilt=True,
            buckets=buckets,
        ),
    )


def _each(window: np.ndarray) -> list[np.ndarray]:
    return [window == value for value in np.unique(window)]


def _forwards(trace: DecodedTrace, lanes: Lanes) -> Int64:
    """Return how many forward passes of DDP each step window has, int64 [w]."""
    rows = np.flatnonzero(trace.events.named(FORWARD_LABEL.__eq__) & trace.events.on_tracks(lanes.threads))
    window = lanes.windows.index_of(trace.events.start_ns[rows])
    return np.bincount(window[window >= 0], minlength=len(lanes.windows)).astype(np.int64)


def _repeated_part(sequence: tuple[tuple[int, int], ...], passes: int) -> tuple[tuple[int, int], ...]:
    """Return the part of the sequence that each of at most so many passes repeats, the shortest one."""
    for repetitions in range(passes, 1, -1):
        length = len(sequence) // repetitions
        if length and sequence == sequence[:length] * repetitions:
            return sequence[:length]
    return sequence


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
