"""Floating-point operations of matrix products, convolutions and attention, from the shapes of their inputs.

Traces hold no counts, not even with torch.profiler's `with_flops`. The formulas are those of
`torch.utils.flop_counter`: a multiplication and an addition are two operations, and attention counts in full, causal or
not. One differs: for the weights' gradient of grouped convolutions, PyTorch multiplies by the number of groups.

The capture's spans show which forwards a backward pass runs again. Without them, autograd numbers do: an operator that
computes a gradient has none. A forward that is run again stops in the operator that computes the last result that the
backward pass needs. So an operator in which nothing happens does not count.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

from tracekit.explain.section import Unavailable
from tracekit.explain.step_time.tables import FlopSum, FlopSums, RecomputeSource
from tracekit.model.communication import DTYPES
from tracekit.model.events import ABSENT, Bool, DecodedTrace, EventTable, Int64
from tracekit.model.spans import GARBAGE_COLLECTION_SPAN, RECOMPUTE_SPAN
from tracekit.rank.communication_rules import dtype_index
from tracekit.rank.kernel_names import SCALAR_KERNEL, TF32_KERNEL
from tracekit.rank.lanes import Lanes, complete_steps
from tracekit.rank.phases import innermost_span, is_autograd_node, outermost_first
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.read.decode.operators import ATTENTIONS, MULTIPLYING

Dims = list[list[int]]

_MAX_FLOPS = 1 << 52
_MOST_DIMENSIONS = 8
# What checkpointing runs on the results of an operator, and what Python may do anywhere.
_NOT_ITS_WORK = ("aten::detach", "detach", GARBAGE_COLLECTION_SPAN)
# Such work whose amount does not follow from its inputs: sequences of varied length, templates, whole networks.
_UNCOUNTED = re.compile(
    r"flash_attn\w*::|xformers\w*::.*fmha|\bflex_attention|unified_attention|_grouped_mm|_(?:cudnn|mi?open)_rnn|"
    r"mkldnn_rnn|triton_tem_|(?:cuda|hip)GraphLaunch"
)


def flop_sums(recorded: RecordedSteps) -> FlopSums:
    """Return the sums over the operators launched in the complete steps."""
    trace, lanes = recorded.trace, recorded.lanes
    events, arguments = trace.events, trace.events.operator_arguments
    complete = complete_steps(lanes, recorded.steps).windows

    def launched_in_steps(rows: Int64) -> Int64:
        window = lanes.windows.index_of(events.start_ns[rows])
        return rows[(window >= 0) & complete[np.maximum(window, 0)]]

    multiplying = events.named(MULTIPLYING.__contains__) & events.on_tracks(lanes.threads)
    rows = launched_in_steps(events.each_once(multiplying))
    of_device = events.in_category("cpu_op", "kernel", "cuda_runtime", "cuda_driver")
    others = np.flatnonzero(events.named(lambda name: _UNCOUNTED.search(name) is not None) & of_device)
    others = launched_in_steps(others)
    uncounted = {_short(events.strings[number]) for number in np.unique(events.name[others]).tolist()}
    inner, numbered = _innermost(events, rows)
    recomputed, source = _recomputed(trace, inner, numbered)
    done = ~recomputed
    done[recomputed] = _anything_in(events, inner[recomputed])
    inner, recomputed = inner[done], recomputed[done]
    kernel = events.in_category("kernel")
    tf32 = bool((kernel & events.named(lambda name: TF32_KERNEL.search(name) is not None)).any())
    scalar = bool((kernel & events.named(lambda name: SCALAR_KERNEL.search(name) is not None)).any())
    at = np.searchsorted(arguments.row, inner)
    columns = (arguments.input_shapes, arguments.input_types, arguments.concrete_inputs)
    keys = (events.name[inner], *(column[at] for column in columns))
    # A training loop repeats a few operators with the same shapes.
    alike = Counter(zip(*(key.tolist() for key in keys), recomputed.tolist(), strict=True))
    count: dict[tuple[str, bool], int] = defaultdict(int)
    flops: dict[tuple[str, bool], int] = defaultdict(int)
    unreadable = 0
    for (*key, again), times in alike.items():
        _, dtypes, operations = operation_of(events.strings, key) or ((), ["unknown"], None)
        if operations is None:
            unreadable += times
            uncounted.add(f"{events.strings[key[0]]} without shapes")
            continue
        dtype = "tf32" if dtypes[0] == "float32" and tf32 else dtypes[0]
        count[dtype, again] += times
        flops[dtype, again] += times * operations
    unavailable = None
    if not len(inner):
        unavailable = Unavailable(reason="no matrix product, convolution or attention is in the trace")
    elif unreadable == len(inner):
        unavailable = Unavailable(reason="operators recorded no shapes (record_shapes)")
    return FlopSums(
        rows=tuple(
            FlopSum(dtype=dtype, recomputed=again, count=count[dtype, again], flops=flops[dtype, again])
            for dtype, again in sorted(count)
        ),
        uncounted=tuple(sorted(uncounted)) if unavailable is None else (),
        unavailable=unavailable,
        recompute=source if unavailable is None else None,
        scalar_float32=scalar and not tf32,
        devices=_devices(events, lanes),
    )


def _devices(events: EventTable, lanes: Lanes) -> int:
    """Return on how many GPUs compute kernels ran; Kineto writes a device's number as the process of its streams."""
    if lanes.device == "cpu":
        return 1
    return max(len({events.tracks[track].pid for track in events.tracks_of(lanes.compute_rows).tolist()}), 1)


def flops_of(name: str, shapes: Dims, concrete: Sequence[object]) -> int | None:
    """Return the operations of an operator in `MULTIPLYING`; None for another, and for shapes that it cannot have.

    `shapes`: of its inputs. `concrete`: its inputs that are no tensors, as text.
    """
    if name not in MULTIPLYING:
        return None
    try:
        flops = _formula(name, shapes, concrete)
    except (IndexError, ValueError, ZeroDivisionError):
        return None
    return flops if 0 <= flops < _MAX_FLOPS else None


def _formula(name: str, shapes: Dims, concrete: Sequence[object]) -> int:
    match name:
        case "aten::mm" | "aten::_scaled_mm":
            return _product(shapes[0], shapes[1])
        case "aten::addmm":
            return _product(shapes[1], shapes[2])
        case "aten::bmm":
            return _batched(shapes[0], shapes[1])
        case "aten::baddbmm":
            return _batched(shapes[1], shapes[2])
        case "aten::convolution":
            return _convolution(shapes, concrete)
        case "aten::convolution_backward":
            wanted = sum(flag == "True" for flag in _list(concrete[10])[:2])
            transposed = concrete[7] == "True"
            image, weight = shapes[1] if transposed else shapes[0], shapes[2]
            return wanted * _filtered(shapes[0][0], image[2:], weight)
        case _ if name in ATTENTIONS:
            query, key, value = shapes[:3]
            return _scores(query, key) * (query[3] + value[3])
        case _:  # the backward of one
            query, key, value = shapes[1:4]
            return _scores(query, key) * (3 * query[3] + 2 * value[3])  # scores again, and four gradients


def _product(left: Sequence[int], right: Sequence[int]) -> int:
    (m, k), (same, n) = left, right
    return 2 * m * n * _equal(k, same)


def _batched(left: Sequence[int], right: Sequence[int]) -> int:
    (b, m, k), (batches, same, n) = left, right
    return 2 * _equal(b, batches) * m * n * _equal(k, same)


def _equal(one: int, other: int) -> int:
    if one != other:
        raise ValueError
    return one


def _convolution(shapes: Dims, concrete: Sequence[object]) -> int:
    image, weight = shapes[0], shapes[1]
    spatial = image[2:]
    if concrete[6] == "True":  # transposed: each point of the input is multiplied
        return _filtered(image[0], spatial, weight)
    stride, padding, dilation = (_numbers(concrete[i], len(spatial)) for i in (3, 4, 5))
    out = [
        (size + 2 * padding[i] - dilation[i] * (weight[2 + i] - 1) - 1) // stride[i] + 1
        for i, size in enumerate(spatial)
    ]
    return _filtered(image[0], out, weight)


def _filtered(images: int, points: Sequence[int], weight: Sequence[int]) -> int:
    """Return the operations of all weights on each point of each image.

    One dimension of the weights has the channels of one group only.
    """
    return 2 * images * math.prod(points) * math.prod(weight)


def _scores(query: Sequence[int], key: Sequence[int]) -> int:
    """Return 2 * batch * heads * queries * keys; keys and values may have fewer heads than queries."""
    batch, heads, queries, _ = query
    return 2 * batch * heads * queries * key[2]


def operation_of(strings: Sequence[str], key: Sequence[int]) -> tuple[Dims, list[str], int | None] | None:
    """Return the shapes of an operator's inputs, their data types, and its operations; None where shapes are unknown.

    There is at least one type; it may be "unknown".

    key: its name, shapes, types and other inputs, as numbers in `strings` or ABSENT.
    """
    name, *texts = (None if number == ABSENT else strings[number] for number in key)
    shapes, types, concrete = (None if text is None else _decoded(text) for text in texts)
    if name is None or shapes is None or not all(map(_is_shape, shapes)):
        return None
    numbers = (dtype_index(text) for text in types or () if isinstance(text, str))
    dtypes = [DTYPES[number] for number in numbers if number != ABSENT] or ["unknown"]
    return shapes, dtypes, flops_of(name, shapes, concrete or ())  # type: ignore[arg-type, return-value]


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= _MOST_DIMENSIONS
        and all(isinstance(size, int) and size >= 0 for size in value)
    )


def _decoded(text: str) -> list[object] | None:
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def _list(value: object) -> list[str]:
    return [item.strip() for item in str(value).strip("[]").split(",")]


def _numbers(value: object, count: int) -> list[int]:
    """Return the numbers of a text such as `[1, 1]`; one number stands for all dimensions."""
    numbers = [int(item) for item in _list(value)]
    return numbers * count if len(numbers) == 1 else numbers


def _innermost(events: EventTable, rows: Int64) -> tuple[Int64, Bool]:
    """Return the operators that contain none of the others, and whether they are in one with an autograd number.

    A tensor subclass dispatches to an operator on its local part of the data: only the inner one counts.
    """
    order = outermost_first(events, rows)
    holds, numbered = np.zeros(len(order), dtype=np.bool_), events.sequence_number[order] != ABSENT
    for track in events.tracks_of(order):
        here = np.flatnonzero(events.track[order] == track)
        start_ns, end_ns = events.start_ns[order[here]], events.end_ns[order[here]]
        holds[here[:-1]] = (start_ns[1:] < end_ns[:-1]) & (end_ns[1:] <= end_ns[:-1])
        until_ns = np.maximum.accumulate(np.where(numbered[here], end_ns, np.iinfo(np.int64).min))[:-1]
        numbered[here[1:]] |= (start_ns[1:] < until_ns) & (end_ns[1:] <= until_ns)
    return order[~holds], numbered[~holds]


def _recomputed(trace: DecodedTrace, rows: Int64, numbered: Bool) -> tuple[Bool, RecomputeSource]:
    """Return which operators a backward pass ran again, and what shows it."""
    events = trace.events
    recorded = trace.header.metadata is not None
    named = RECOMPUTE_SPAN.__eq__ if recorded else is_autograd_node
    spans = events.each_once(events.named(named) & ~events.in_category("gpu_user_annotation"))
    inside = innermost_span(events, spans, events.track[rows].astype(np.int64), events.start_ns[rows]) != ABSENT
    return (inside, "recorded") if recorded else (inside & numbered, "inferred")


def _anything_in(events: EventTable, rows: Int64) -> Bool:
    """Return whether any work begins on their thread within each of `rows`, mask."""
    result = np.zeros(len(rows), dtype=np.bool_)
    happens = ~events.named(_NOT_ITS_WORK.__contains__)
    for track in events.tracks_of(rows):
        on_track = np.flatnonzero(events.track[rows] == track)
        starts_ns = np.sort(events.start_ns[happens & (events.track == track)])
        first = np.searchsorted(starts_ns, events.start_ns[rows[on_track]], side="right")
        result[on_track] = np.searchsorted(starts_ns, events.end_ns[rows[on_track]], side="left") > first
    return result


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:57]}..."
