"""When each of DDP's buckets was ready, launched, on its way and done, on one rank.

Comes in: a decoded trace with the capture's bucket map, its lanes and phases. Goes out: `BucketRuns`.

DDP launches the buckets of a module in order of their index, whatever the order in which their gradients come, and once
in a backward pass that reduces. So the next all-reduce of a step that has as many elements as the next bucket is its
reduction; others, such as that of which parameters were used, fit no bucket. On a CPU rank DDP copies each gradient
into its bucket when it is there (`reducer::mul_out`): the last copy before a launch is what it waited for. On a GPU
rank that is the last kernel launched before.

    gradients   |--g--|--g--|--g--|                       ready and launch: the last gradient is in
    bucket 0                      |queued|= all-reduce =|  queued: Gloo's threads were busy, or NCCL's stream
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tracekit.analysis.communication_rules import bytes_per_element
from tracekit.analysis.lanes import Lanes
from tracekit.analysis.phases import PHASES, PhaseTimeline
from tracekit.analysis.steps import device_starts
from tracekit.model.bucket_runs import BucketRuns, no_bucket_runs
from tracekit.model.communication import DTYPES, KINDS
from tracekit.model.events import ABSENT, DecodedTrace, Int64
from tracekit.model.metadata import DdpModule

# Into the bucket; `copy_bucket_to_grad` is the way back.
_COPIED = re.compile(r"torch(?:::|\.)distributed(?:::|\.)(?:ddp\.)?reducer::(?:mul_out|mul_|div_out|div_|copy_)")

__all__ = ["bucket_runs"]


def bucket_runs(trace: DecodedTrace, lanes: Lanes, phases: PhaseTimeline) -> BucketRuns:
    """Of all step windows; empty without a recorded bucket map."""
    metadata = trace.header.metadata
    modules = metadata.ddp if metadata is not None else []
    if not any(module.buckets for module in modules):
        return no_bucket_runs()
    found = lanes.communication_events
    reduces = (found.kind == KINDS.index("all_reduce")) & (found.dtype != ABSENT) & (found.size_bytes > 0)
    in_backward = phases.at(found.launch_ns) == PHASES.index("backward")
    which = np.flatnonzero(reduces & in_backward & lanes.counted & (lanes.window >= 0))
    which = which[np.argsort(found.launch_ns[which], kind="stable")]
    element_bytes = np.array([bytes_per_element(name) or 1 for name in DTYPES], dtype=np.int64)
    elements = found.size_bytes[which] // element_bytes[found.dtype[which]]
    taken, module, index = _assigned(elements, lanes.window[which], modules)
    own = which[taken]
    launch_ns, start_ns, end_ns = found.launch_ns[own], found.start_ns[own], found.end_ns[own]
    return BucketRuns(
        module=module.astype(np.int32),
        index=index.astype(np.int32),
        step=lanes.windows.step[lanes.window[own]].astype(np.int64),
        ready_ns=_ready_ns(trace, lanes, launch_ns),
        launch_ns=launch_ns,
        start_ns=start_ns,
        end_ns=end_ns,
        exposed_ns=end_ns - start_ns - lanes.compute.covered_ns(start_ns, end_ns),
        size_bytes=found.size_bytes[own],
    )


def _assigned(elements: Int64, window: Int64, modules: Sequence[DdpModule]) -> tuple[Int64, Int64, Int64]:
    """Which of the reductions, by elements and step, are of a bucket; and its module and index: int64 [k] each."""
    expected = [
        [bucket.size_bytes // (bytes_per_element(bucket.dtype) or 1) for bucket in module.buckets] for module in modules
    ]
    upcoming, current = [0] * len(modules), ABSENT
    rows: list[tuple[int, int, int]] = []
    for position, (count, step) in enumerate(zip(elements.tolist(), window.tolist(), strict=True)):
        if step != current:
            upcoming, current = [0] * len(modules), step
        for module, buckets in enumerate(expected):
            if buckets and buckets[upcoming[module]] == count:
                rows.append((position, module, upcoming[module]))
                upcoming[module] = (upcoming[module] + 1) % len(buckets)
                break
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return columns[0], columns[1], columns[2]


def _ready_ns(trace: DecodedTrace, lanes: Lanes, launch_ns: Int64) -> Int64:
    """int64 [n]: when the last gradient before each launch was there; where no copy shows it, the launch itself."""
    events = trace.events
    if lanes.device == "gpu":
        return device_starts(events, launch_ns, lanes.device_events, lanes.compute_rows)
    copies = events.named(lambda name: _COPIED.fullmatch(name) is not None) & np.isin(events.track, lanes.threads)
    copied_ns = np.sort(events.end_ns[copies])
    place = np.searchsorted(copied_ns, launch_ns, side="right") - 1
    latest_ns = copied_ns[np.maximum(place, 0)] if len(copied_ns) else launch_ns
    before_ns = np.concatenate(([np.iinfo(np.int64).min], launch_ns[:-1]))
    return np.where((place >= 0) & (latest_ns > before_ns), latest_ns, launch_ns)
