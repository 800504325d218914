"""When each of DDP's buckets was ready, launched, started and done, on one rank.

DDP launches the buckets of a module in order of their index, once in each backward pass that reduces. So the next
all-reduce of a step with as many elements as the next bucket is its reduction. Other all-reduces, such as that of
`find_unused_parameters`, fit no bucket. In the first iteration, before DDP has rebuilt its buckets, it reduces all
gradients at once.

On a CPU rank DDP copies each gradient into its bucket (`reducer::mul_out`): a launch waited for the last copy before
it. On a GPU rank it waited for the last kernel launched before it.

    gradients   |--g--|--g--|--g--|                       ready and launch: the last gradient is in the bucket
    bucket 0                      |queued|= all-reduce =|  queued: Gloo's threads or NCCL's stream were busy

The buckets are those that the capture recorded. In a trace with labels of DDP but without a bucket map, they are
inferred from the all-reduces, and only their sizes are known. DDP reduces the same buckets in the same order in every
backward pass, in hooks that run as a gradient is accumulated. So its buckets are the all-reduces that fulfil all of
these:

* they are of floating-point numbers, and issued while a gradient is accumulated;
* they are of one group;
* their sizes have the same order in most steps.

A loop that averages gradients by hand has no such label.

A step may have several backward passes that reduce. It has no more of them than forward passes, which tells two passes
from a bucket list with the same sizes twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.explain.ddp.gradient_times import copies_into_buckets
from tracekit.explain.ddp.tables import WHOLE, BucketReductions, DdpPasses
from tracekit.model.communication import DTYPES, KINDS, CommunicationEvents
from tracekit.model.events import ABSENT, DecodedTrace, Int64
from tracekit.model.intervals import Intervals, beyond_earlier
from tracekit.model.metadata import Bucket, DdpModule
from tracekit.model.summary import StepParts
from tracekit.rank.communication_rules import bytes_per_element
from tracekit.rank.groups import strategies_of
from tracekit.rank.lanes import Lanes, complete_steps
from tracekit.rank.phases import AUTOGRAD_NODE_PREFIX, PHASES
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.rank.steps import device_starts

_ACCUMULATES = f"{AUTOGRAD_NODE_PREFIX}torch::autograd::AccumulateGrad"
_FLOATING = tuple(i for i, name in enumerate(DTYPES) if "float" in name)

FORWARD_LABEL = "DistributedDataParallel.forward"


@dataclass(frozen=True, kw_only=True, eq=False)
class Reductions:
    """All-reduces of backward passes, in order of launch.

    Attributes:
        which: int64 [n], positions among the communication events.
        elements: int64 [n].
    """

    which: Int64
    elements: Int64


def gradient_reductions(recorded: RecordedSteps) -> Reductions:
    """Return the all-reduces of backward passes in the step windows whose size is known."""
    lanes, communication = recorded.lanes, recorded.lanes.communication_events
    reduces = (
        (communication.kind == KINDS.index("all_reduce"))
        & (communication.dtype != ABSENT)
        & (communication.size_bytes > 0)
    )
    in_backward = recorded.phases.at(communication.launch_ns) == PHASES.index("backward")
    which = np.flatnonzero(reduces & in_backward & lanes.counted & (lanes.window >= 0))
    which = which[np.argsort(communication.launch_ns[which], kind="stable")]
    return Reductions(which=which, elements=reduced_elements(communication, which))


def reduced_elements(communication: CommunicationEvents, which: Int64) -> Int64:
    """Return how many elements some communication events have, int64 [n], where size and data type are known."""
    element_bytes = np.array([bytes_per_element(name) or 1 for name in DTYPES], dtype=np.int64)
    return np.asarray(communication.size_bytes[which] // element_bytes[communication.dtype[which]])


def bucket_reductions(
    trace: DecodedTrace, lanes: Lanes, reductions: Reductions, modules: Sequence[DdpModule]
) -> BucketReductions:
    """Return the reductions of buckets in all step windows; empty without a bucket map."""
    if not any(module.buckets for module in modules):
        return BucketReductions.empty()
    which = reductions.which
    assigned, module, index, backward_pass = _assigned(reductions.elements, lanes.window[which], modules)
    return BucketReductions(
        module=module.astype(np.int32),
        index=index.astype(np.int32),
        backward_pass=backward_pass.astype(np.int32),
        **measured_columns(trace, lanes, which[assigned]),
    )


def measured_columns(trace: DecodedTrace, lanes: Lanes, which: Int64) -> dict[str, Int64]:
    """Return the columns of `BucketReductions` that are measured, int64 [n] each.

    which: communication events of step windows, int64 [n], in order of launch.
    """
    communication = lanes.communication_events
    start_ns, end_ns = communication.start_ns[which], communication.end_ns[which]
    alone_ns, alone_end_ns = beyond_earlier(start_ns, end_ns)
    return {
        "step": lanes.windows.step[lanes.window[which]].astype(np.int64),
        "ready_ns": _ready_ns(trace, lanes, communication.launch_ns[which]),
        "launch_ns": communication.launch_ns[which],
        "start_ns": start_ns,
        "end_ns": end_ns,
        "uncovered_ns": end_ns - start_ns - lanes.compute.covered_ns(start_ns, end_ns),
        "added_ns": alone_end_ns - alone_ns - lanes.compute.covered_ns(alone_ns, alone_end_ns),
        "size_bytes": communication.size_bytes[which],
    }


def _assigned(elements: Int64, window: Int64, modules: Sequence[DdpModule]) -> tuple[Int64, Int64, Int64, Int64]:
    """Return which reductions are of a bucket, with module, index and backward pass in the step: int64 [k] each."""
    expected = [
        [bucket.size_bytes // (bytes_per_element(bucket.dtype) or 1) for bucket in module.buckets] for module in modules
    ]
    upcoming, backward_passes, current = [0] * len(modules), [0] * len(modules), ABSENT
    rows: list[tuple[int, int, int, int]] = []
    for position, (count, step) in enumerate(zip(elements.tolist(), window.tolist(), strict=True)):
        if step != current:
            upcoming, backward_passes, current = [0] * len(modules), [0] * len(modules), step
        for module, buckets in enumerate(expected):
            if buckets and buckets[upcoming[module]] == count:
                rows.append((position, module, upcoming[module], backward_passes[module]))
                upcoming[module] = (upcoming[module] + 1) % len(buckets)
                backward_passes[module] += not upcoming[module]
                break
            if len(buckets) > 1 and not upcoming[module] and count == sum(buckets):
                rows.append((position, module, WHOLE, backward_passes[module]))
                backward_passes[module] += 1
                break
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return columns[0], columns[1], columns[2], columns[3]


def _ready_ns(trace: DecodedTrace, lanes: Lanes, launch_ns: Int64) -> Int64:
    """Return when the last gradient before each launch was ready, int64 [n].

    Where no copy shows it, that is the launch itself.
    """
    events = trace.events
    if lanes.device == "gpu":
        return device_starts(events, launch_ns, lanes.device_events, lanes.computes)
    copied_ns = np.sort(events.end_ns[copies_into_buckets(events, lanes)])
    index = np.searchsorted(copied_ns, launch_ns, side="right") - 1
    latest_ns = copied_ns[np.maximum(index, 0)] if len(copied_ns) else launch_ns
    before_ns = np.concatenate(([np.iinfo(np.int64).min], launch_ns[:-1]))
    return np.where((index >= 0) & (latest_ns > before_ns), latest_ns, launch_ns)


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
        for here in (window == number for number in np.unique(window))
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


def ddp_passes(trace: DecodedTrace, lanes: Lanes, steps: Sequence[StepParts]) -> DdpPasses:
    """Return the counts over the complete steps."""
    complete = complete_steps(lanes, steps).windows
    return DdpPasses(forwards=int(_forwards(trace, lanes)[complete].sum()))
