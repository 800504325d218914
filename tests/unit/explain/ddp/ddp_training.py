"""Simulated CPU ranks that train with DDP. Times are microseconds.

The gradients of ten layers come every 10 ms. Reductions take 1 ms and 10 ns a byte.

    rank 0, 1   |--g--|--g--|--g--| ... |--g--|
    buckets                       |= 1 ms + 10 ns a byte =|
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.builders import TraceBuilder
from tracekit.model.metadata import Bucket, DdpModule

COPY = "torch::distributed::reducer::mul_out"
ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
LAYERS, ELEMENTS, EVERY = 10, 100_000, 10_000
LAYER_BYTES = 4 * ELEMENTS
STEP = 150_000
NAMES = [f"layers.{LAYERS - 1 - i}.weight" for i in range(LAYERS)]


def took(size_bytes: int) -> int:
    return 1_000 + size_bytes // 100


def module(layers: Sequence[int], cap_mb: float, **others: object) -> DdpModule:
    """Buckets of so many layers each."""
    buckets, first = [], 0
    for index, count in enumerate(layers):
        names = NAMES[first : first + count]
        elements = [ELEMENTS] * count
        buckets.append(
            Bucket(index=index, size_bytes=LAYER_BYTES * count, dtype="float32", parameters=names, elements=elements)
        )
        first += count
    fields = {"bucket_cap_bytes": int(cap_mb * 2**20), "static_graph": False, "find_unused": False, "rebuilt": True}
    return DdpModule(**{"module": "Network", "buckets": buckets, **fields, **others})


def rank(
    number: int,
    layers: Sequence[int],
    *,
    steps: int = 4,
    shapes: bool = True,
    late: int | None = None,
    used: int = LAYERS,
    backward_passes: int = 1,
    labels: bool = False,
) -> TraceBuilder:
    """Return the trace of one rank.

    `late`: the layer whose gradient comes last, 10 ms after all others. `used`: how many layers have a gradient.
    `backward_passes`: how many a step has, each of which reduces. `labels`: whether the trace has those of torch.
    """
    trace = TraceBuilder(number, 2)
    for step in range(steps):
        at = step * STEP * backward_passes
        trace.step(step, at, STEP * backward_passes)
        for backward_pass in range(backward_passes):
            _backward(trace, at + backward_pass * STEP, layers, shapes=shapes, late=late, used=used, labels=labels)
    return trace


def _backward(
    trace: TraceBuilder, at: int, layers: Sequence[int], *, shapes: bool, late: int | None, used: int, labels: bool
) -> None:
    if labels:
        trace.label("DistributedDataParallel.forward", at, 5)
    order = [layer for layer in range(used) if layer != late] + ([late] if late is not None else [])
    ready = {}
    for place, layer in enumerate(order):
        begin = at + place * EVERY
        trace.backward("MmBackward0", begin + 10, EVERY - 30)
        arguments = {"Input Dims": [[ELEMENTS]], "Input type": ["float"]} if shapes else {}
        trace.op(COPY, begin + EVERY - 10, 10, thread=trace.autograd, **arguments)
        trace.event(ACCUMULATE, "cpu_op", begin + EVERY - 15, 22, thread=trace.autograd, args={})
        ready[layer] = begin + EVERY
    launched, free, first = at, at, 0
    for index, count in enumerate(layers):
        launched = max([launched, *(ready[layer] for layer in range(first, first + count) if layer in ready)])
        size = LAYER_BYTES * count
        end = max(launched + 1_000, free) + size // 100
        trace.gloo(
            "all_reduce",
            launched,
            end - launched,
            issued_at=launched,
            elements=ELEMENTS * count,
            runloop=index % 2,
            thread=trace.autograd,
        )
        free, first = end, first + count
