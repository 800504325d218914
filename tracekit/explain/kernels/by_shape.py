"""What kernels compute: for which operator, on which shapes, in which module and phase, and how fast.

The operator is the innermost one that launched the kernel. Layers whose names differ only in numbers are one module,
`layers.*.mlp`. Where the shapes of the operator's inputs are recorded, its longest kernel has a rate:

* FLOP/s of matrix products, convolutions and attention, by the formulas of `step_time/flops.py`.
* Bytes a second: what the operator reads and writes at least, each input and the result once. A kernel that comes near
  the bandwidth of the device's memory will not be faster by more arithmetic, nor one near its peak by less traffic.

Only some steps are looked at, evenly spread, and of each rank the rows with the most time are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from tracekit.explain.kernels.by_name import DEVICE_KINDS, chosen_steps, device_kinds, rows_in
from tracekit.explain.step_time.flops import Dims, operation_of
from tracekit.explain.step_time.roofline import peak_rates
from tracekit.model.events import ABSENT, Bool, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.names.modules import name_of_layers_alike
from tracekit.model.run import Run
from tracekit.model.spans import LABEL_PREFIX
from tracekit.model.summary import Part, RankSummary, merge_sums
from tracekit.model.table import Column, Display, Table
from tracekit.rank.communication_rules import bytes_per_element
from tracekit.rank.kernel_names import TF32_KERNEL, function_of_kernel
from tracekit.rank.modules import modules_of_launches
from tracekit.rank.phases import PHASES, innermost_span
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.read.decode.operators import ATTENTIONS, SIZED, STREAMING
from tracekit.stats.grouped import grouped
from tracekit.stats.rows_by_key import rows_by_key

MOST_LAUNCHES = 20_000
"""About so many device events are looked at: those of whole steps, at least one."""

MOST_OF_RANK = 100
"""How many rows are kept of a rank; the others are one row in each phase, of OTHERS."""

OTHERS = "all others"

_KEY = ("phase", "module", "operator", "shapes", "dtype", "kernel", "kind")
_AMOUNTS = ("count", "total_ns", "flops", "size_bytes")
KERNEL_SHAPES = Table(
    "kernel_shapes",
    (
        Column("kernel", "str", "", f"Its function, without namespace and arguments; {OTHERS}: those with less time."),
        Column("operator", "str", "", "The innermost operator that launched it, as recorded; empty if there is none."),
        Column("shapes", "str", "", "Of the operator's inputs, where they are recorded: 64x512, 512x10."),
        Column("dtype", "str", "", "Of the first input; tf32: float32 on tensor cores."),
        Column("phase", "str?", "", "Of the launch; null where it was not recorded."),
        Column("module", "str?", "", "The module that launched it, of layers alike with *; null: unknown."),
        Column("kind", "str", "", "compute, copy, or the kind of communication."),
        Column("count", "float", "", "Mean number a step."),
        Column("total_ns", "float", "ns", "Mean time a step, whether or not other kernels run at the time."),
        Column("flops_per_s", "float?", "FLOP/s", "Floating-point operations by the kernel's time; null if unknown."),
        Column("flops_share", "float?", "ratio", "Of what the device can do at most in this data type."),
        Column("bandwidth_bps", "float?", "B/s", "What is read and written at least, by the kernel's time."),
        Column("bandwidth_share", "float?", "ratio", "Of the bandwidth of the device's memory."),
        Column("ranks", "int", "", "Ranks on which it is among those with the most time; the means are over these."),
    ),
    Display(
        "Kernels by what they compute (ms a step; shares of the device's peak)",
        "kernel | shapes | phase | count | time=total_ns | FLOP/s=flops_share? | memory=bandwidth_share?",
        most=8,
    ),
)


@dataclass(frozen=True, kw_only=True)
class ShapeSum:
    """One kernel for one operator on inputs of one shape, over some steps of one rank.

    Attributes:
        flops, size_bytes: of the operators whose longest kernel it is; 0 if they are not known.
    """

    phase: str | None
    module: str | None
    operator: str
    shapes: str
    dtype: str
    kernel: str
    kind: str
    count: int
    total_ns: int
    flops: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class ShapeSums:
    """The rows of one rank.

    Attributes:
        steps: how many complete steps they are over.
    """

    steps: int = 0
    rows: tuple[ShapeSum, ...] = ()


def _merged(windows: Sequence[ShapeSums]) -> ShapeSums:
    return ShapeSums(
        steps=sum(window.steps for window in windows), rows=_longest(chain.from_iterable(each.rows for each in windows))
    )


SHAPE_SUMS = Part(name="kernel_shapes", type=ShapeSums, empty=ShapeSums, merge=_merged)


def _longest(rows: Iterable[ShapeSum]) -> tuple[ShapeSum, ...]:
    """Return the rows of equal keys as one each, the longest first, and those beyond the most as one in each phase."""
    merged = sorted(merge_sums(rows, key=_KEY, amounts=_AMOUNTS), key=lambda row: -row.total_ns)
    rest = [
        replace(row, module=None, operator="", shapes="", dtype="", kernel=OTHERS, kind="", flops=0, size_bytes=0)
        for row in merged[MOST_OF_RANK:]
    ]
    return merge_sums((*merged[:MOST_OF_RANK], *rest), key=_KEY, amounts=_AMOUNTS)


def shape_sums(recorded: RecordedSteps) -> ShapeSums:
    """Return the sums of the device events that begin in some of the complete steps; nothing for a CPU rank."""
    lanes, events, device = recorded.lanes, recorded.trace.events, recorded.lanes.device_events
    chosen = chosen_steps(recorded, len(device), most=MOST_LAUNCHES)
    if lanes.device == "cpu" or not len(chosen):
        return ShapeSums()
    windows = lanes.windows
    inside = rows_in(events.start_ns[device.row], Intervals.union_of(windows.start_ns[chosen], windows.end_ns[chosen]))
    row, launch, kind = device.row[inside], device.launch_row[inside], device_kinds(lanes)[inside]
    is_linked, launch_ns = launch != ABSENT, events.start_ns[launch]
    track = np.where(is_linked, events.track[launch], ABSENT).astype(np.int64)
    phase = np.where(is_linked, recorded.phases.at(launch_ns), ABSENT)
    modules = [name and name_of_layers_alike(name) for name in modules_of_launches(events, track, launch_ns)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(modules))}
    module = np.array([numbers[name] for name in modules], dtype=np.int64)
    operator = _operators(events, track, launch_ns)
    is_main = _longest_of_each(operator, events.duration_ns[row])
    names, work = list(numbers), cache(lambda *operation: _work(events.strings, operation))
    rows = []
    for key, here in rows_by_key(events.name[row], kind, phase, module, *_operations(events, operator)).items():
        kernel, kind_number, phase_number, module_number, *operation = key
        text = events.strings[kernel] if kernel != ABSENT else ""
        shapes, dtype, flops, size_bytes = work(*operation)
        times = int(is_main[here].sum())
        rows.append(
            ShapeSum(
                phase=PHASES[phase_number] if phase_number >= 0 else None,
                module=names[module_number],
                operator="" if operation[0] == ABSENT else events.strings[operation[0]],
                shapes=shapes,
                dtype="tf32" if dtype == "float32" and TF32_KERNEL.search(text) else dtype,
                kernel=function_of_kernel(text).rpartition("::")[2],
                kind=DEVICE_KINDS[kind_number],
                count=len(here),
                total_ns=int(events.duration_ns[row[here]].sum()),
                flops=flops * times,
                size_bytes=size_bytes * times,
            )
        )
    return ShapeSums(steps=len(chosen), rows=_longest(rows))


def _operators(events: EventTable, track: Int64, launch_ns: Int64) -> Int64:
    """Return the row of the operator of each launch, int64 [n], or ABSENT: of nested ones the innermost whose shapes
    are recorded, else the innermost.
    """
    on_thread = events.in_category("cpu_op") & events.on_tracks(np.unique(track[track != ABSENT]))
    operators = np.flatnonzero(on_thread & events.named(lambda name: not name.startswith(LABEL_PREFIX)))
    sized = operators[events.named(SIZED.__contains__)[operators]]
    found = innermost_span(events, sized, track, launch_ns)
    return np.where(found != ABSENT, found, innermost_span(events, operators, track, launch_ns))


def _longest_of_each(operator: Int64, duration_ns: Int64) -> Bool:
    """Return which kernels are the longest of their operator, bool [n]."""
    order = np.lexsort((duration_ns, operator))
    result = np.zeros(len(operator), dtype=np.bool_)
    result[order[np.append(operator[order][1:] != operator[order][:-1], True)[: len(order)]]] = True
    return np.asarray(result & (operator != ABSENT))


def _operations(events: EventTable, operator: Int64) -> tuple[Int64, ...]:
    """Return name, shapes, types and other inputs of each operator, as interned text or ABSENT; int64 [n] each."""
    arguments = events.operator_arguments
    name = np.where(operator != ABSENT, events.name[operator], ABSENT)
    if not len(arguments.row):
        return (name, *(np.full(len(name), ABSENT),) * 3)
    at = np.minimum(np.searchsorted(arguments.row, operator), len(arguments.row) - 1)
    known = arguments.row[at] == operator
    columns = (arguments.input_shapes, arguments.input_types, arguments.concrete_inputs)
    return (name, *(np.where(known, column[at], ABSENT) for column in columns))


def _work(strings: Sequence[str], operation: Sequence[int]) -> tuple[str, str, int, int]:
    """Return the shapes as text, the data type, the operations, and the bytes; "" or 0 where they are unknown."""
    found = operation_of(strings, operation)
    if found is None:
        return "", "", 0, 0
    shapes, dtypes, flops = found
    sizes = ", ".join("x".join(map(str, dims)) for dims in shapes if dims)
    width = min(bytes_per_element(dtype) or 0 for dtype in dtypes)  # of a cast the lesser side: at least
    moved = elements_moved(strings[operation[0]], shapes) or 0
    return sizes, dtypes[0], flops or 0, moved * width


def elements_moved(name: str, shapes: Dims) -> int | None:
    """Return how many elements an operator reads and writes at least; None where it does not follow from its inputs."""
    inputs = [math.prod(dims) for dims in shapes if dims]
    try:
        match name:
            case "aten::mm" | "aten::_scaled_mm":
                result = shapes[0][0] * shapes[1][1]
            case "aten::addmm":
                result = shapes[1][0] * shapes[2][1]
            case "aten::bmm":
                result = math.prod((*shapes[0][:2], shapes[1][2]))
            case "aten::copy_":
                result = 0  # the tensor that it writes is an input
            case _ if name in ATTENTIONS:
                result = math.prod((*shapes[0][:3], shapes[2][3]))
            case _ if name in STREAMING:
                result = max(inputs)
            case _:
                return None
    except (IndexError, ValueError):
        return None
    return sum(inputs) + result


def rows_by_shape(run: Run) -> list[dict[str, Any]]:
    """Return a row of KERNEL_SHAPES for each key, the most time first, and the others last."""
    given = ((row, summary) for summary in run.ranks for row in summary[SHAPE_SUMS].rows)
    by_key = grouped((tuple(getattr(row, name) for name in _KEY), (row, summary)) for row, summary in given)
    rows = [dict(zip(_KEY, key, strict=True)) | _means(of_key) for key, of_key in by_key.items()]
    return sorted(rows, key=lambda row: (row["kernel"] == OTHERS, -row["total_ns"]))


def _means(of_key: Sequence[tuple[ShapeSum, RankSummary]]) -> dict[str, Any]:
    """Return the amounts of a row, which is of these ranks."""
    sums = {name: sum(getattr(row, name) for row, _ in of_key) for name in _AMOUNTS}
    per_step = {name: sum(getattr(row, name) / rank[SHAPE_SUMS].steps for row, rank in of_key) for name in _AMOUNTS[:2]}
    first, rank = of_key[0]
    peaks = peak_rates(rank.device_name)
    rates = [sums[name] / sums["total_ns"] * 1e9 if sums["total_ns"] else 0.0 for name in ("flops", "size_bytes")]
    shares = [
        rate / peaks[of] / 1e12 if of in peaks else None
        for rate, of in zip(rates, (first.dtype, "memory"), strict=True)
    ]
    is_known = [rate > 0 and (share is None or share <= 1) for rate, share in zip(rates, shares, strict=True)]
    (flops, flops_share), (bandwidth, bandwidth_share) = (
        (rate, share) if known else (None, None) for rate, share, known in zip(rates, shares, is_known, strict=True)
    )
    return {
        "ranks": len(of_key),
        **{name: total / len(of_key) for name, total in per_step.items()},
        "flops_per_s": flops,
        "flops_share": flops_share,
        "bandwidth_bps": bandwidth,
        "bandwidth_share": bandwidth_share,
    }
