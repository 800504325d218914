"""When the gradients of DDP modules were in their buckets, on one rank.

DDP copies each gradient into its bucket in a separate operator: `reducer::mul_out`, or `copy_` with a communication
hook. There is none where the gradients are views of the bucket. On a CPU rank the gradient is ready when that operator
ends, on a GPU rank when the kernel ends that it launched.

The trace does not say which parameter a gradient is of. It is the next one with as many elements, in the order of
gradients in the pass that DDP logged, else in the order of the buckets.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Sequence

import numpy as np

from tracekit.explain.ddp.tables import BucketReductions, GradientTimes
from tracekit.model.events import ABSENT, Bool, DecodedTrace, EventTable, Int64
from tracekit.model.metadata import DdpModule
from tracekit.rank.communication_rules import bytes_per_element
from tracekit.rank.lanes import Lanes
from tracekit.rank.shapes import recorded_shapes

_COPIED = re.compile(r"torch(?:::|\.)distributed(?:::|\.)(?:ddp\.)?reducer::(?:mul_out|mul_|div_out|div_|copy_)")
_COPIED_BACK = re.compile(r"torch(?:::|\.)distributed(?:::|\.)(?:ddp\.)?reducer::copy_bucket_to_grad")


def copies_into_buckets(events: EventTable, lanes: Lanes) -> Bool:
    """Return a mask [n] of the operators by which DDP copies gradients into buckets."""
    return events.named(lambda name: _COPIED.fullmatch(name) is not None) & events.on_tracks(lanes.threads)


def gradient_times(
    trace: DecodedTrace, lanes: Lanes, runs: BucketReductions, modules: Sequence[DdpModule]
) -> GradientTimes:
    """Return the gradients of the backward passes that reduced all buckets of a module.

    Empty where the trace has no copies, or not their shapes.
    """
    events = trace.events
    arguments = events.collective_arguments
    rows = np.flatnonzero(copies_into_buckets(events, lanes))
    rows = rows[np.isin(rows, arguments.row[arguments.input_shapes != ABSENT])]
    if not len(rows) or not len(runs):
        return GradientTimes.empty()
    shapes = recorded_shapes(events)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    elements = np.array([max(shapes[int(row)].elements_of_arguments, default=0) for row in rows], dtype=np.int64)
    passes = _passes(lanes, events.start_ns[rows], elements, runs, modules)
    if not passes:
        return GradientTimes.empty()
    times = _device_times if lanes.device == "gpu" else _host_times
    ready_ns, copy_ns = times(events, lanes, rows)
    back = np.flatnonzero(events.named(lambda name: _COPIED_BACK.fullmatch(name) is not None))
    back = back[np.argsort(events.start_ns[back], kind="stable")]
    _, took_back_ns = times(events, lanes, back)
    launched_ns, back_launched_ns = events.start_ns[rows], events.start_ns[back]
    computed_ns = lanes.compute.covered_ns(np.full(len(rows), ready_ns.min()), ready_ns)
    columns = []
    for (module, step, backward_pass), gradients in passes:
        parameter, copy = np.array(gradients, dtype=np.int64).T
        # After the last launch, DDP copies back bucket by bucket, and each bucket in order.
        first = int(np.searchsorted(back_launched_ns, launched_ns[copy].max()))
        back_ns = copy_ns[copy].copy()
        if len(measured_ns := took_back_ns[first : first + len(copy)]) == len(copy):
            back_ns[np.argsort(parameter, kind="stable")] = measured_ns
        in_time = np.argsort(ready_ns[copy], kind="stable")
        parameter, copy, back_ns = parameter[in_time], copy[in_time], back_ns[in_time]
        columns.append(
            GradientTimes.of_rows(
                len(copy),
                module=module,
                step=step,
                backward_pass=backward_pass,
                parameter=parameter,
                ready_ns=ready_ns[copy],
                back_ns=back_ns,
                elements=elements[copy],
                compute_ns=computed_ns[copy] - computed_ns[copy[0]],
            )
        )
    return GradientTimes.concatenate(columns)


_Pass = tuple[tuple[int, int, int], list[tuple[int, int]]]


def _passes(
    lanes: Lanes, start_ns: Int64, elements: Int64, runs: BucketReductions, modules: Sequence[DdpModule]
) -> list[_Pass]:
    """Return for each backward pass its module, step and number in the step, and (parameter, copy) of each gradient.

    A pass is over when the last bucket of its module is launched.
    """
    known = all(len(bucket.elements) == len(bucket.parameters) > 0 for module in modules for bucket in module.buckets)
    if not known and len(modules) > 1:
        return []
    window = lanes.windows.index_of(start_ns)
    ends = np.array([len(module.buckets) - 1 for module in modules])
    last = np.flatnonzero(runs.index == ends[runs.module])
    last = last[np.argsort(runs.launch_ns[last], kind="stable")]
    until = np.searchsorted(start_ns, runs.launch_ns[last], side="right")
    assignment = _AssignBySize(modules) if known else _AssignInOrder(modules[0])
    result: list[_Pass] = []
    first, step = 0, ABSENT
    for stop, row in zip(until.tolist(), last.tolist(), strict=True):
        for copy in range(first, stop):
            if window[copy] != step:  # copies left over from an earlier step belong to no pass
                step = int(window[copy])
                assignment.begin()
            assignment.take(copy, int(elements[copy]))
        first = stop
        if gradients := assignment.finish(int(runs.module[row])):
            result.append(((int(runs.module[row]), int(runs.step[row]), int(runs.backward_pass[row])), gradients))
    return result


class _AssignBySize:
    """Assigns copies to parameters by size, when a module has launched its last bucket.

    Each copy belongs to the module's next parameter with as many elements. Copies that fit no parameter are of a module
    that has not finished.
    """

    def __init__(self, modules: Sequence[DdpModule]) -> None:
        self._sizes = [[count for bucket in module.buckets for count in bucket.elements] for module in modules]
        self._orders = [
            module.gradient_order if sorted(module.gradient_order) == list(range(len(sizes))) else range(len(sizes))
            for module, sizes in zip(modules, self._sizes, strict=True)
        ]
        self.begin()

    def begin(self) -> None:
        self._copies: list[tuple[int, int]] = []

    def take(self, copy: int, elements: int) -> None:
        self._copies.append((copy, elements))

    def finish(self, module: int) -> list[tuple[int, int]]:
        missing: defaultdict[int, deque[int]] = defaultdict(deque)
        for parameter in self._orders[module]:
            missing[self._sizes[module][parameter]].append(parameter)
        gradients, rest = [], []
        for copy, elements in self._copies:
            if missing[elements]:
                gradients.append((missing[elements].popleft(), copy))
            else:
                rest.append((copy, elements))
        self._copies = rest
        return gradients


class _AssignInOrder:
    """Assigns copies to parameters in order, for a module of which only the sizes of buckets are known.

    If the copies do not fill the buckets exactly, none is assigned.
    """

    def __init__(self, module: DdpModule) -> None:
        sizes = [bucket.size_bytes // (bytes_per_element(bucket.dtype) or 1) for bucket in module.buckets]
        self._full = set(np.cumsum(sizes).tolist())
        self.begin()

    def begin(self) -> None:
        self._copies: list[int] = []
        self._reached = [0]

    def take(self, copy: int, elements: int) -> None:
        self._copies.append(copy)
        self._reached.append(self._reached[-1] + elements)

    def finish(self, module: int) -> list[tuple[int, int]]:
        filled = self._full <= set(self._reached) and self._reached[-1] == max(self._full)
        gradients = list(enumerate(self._copies)) if filled else []
        self.begin()
        return gradients


def _host_times(events: EventTable, lanes: Lanes, rows: Int64) -> tuple[Int64, Int64]:
    return events.end_ns[rows], events.duration_ns[rows]


def _device_times(events: EventTable, lanes: Lanes, rows: Int64) -> tuple[Int64, Int64]:
    """Return end and duration of the last kernel that each operator launched; else those of the operator."""
    device = lanes.device_events
    ready_ns, copy_ns = _host_times(events, lanes, rows)
    linked = np.flatnonzero(device.linked)
    launch = device.launch_row[linked]
    ready_ns, copy_ns = ready_ns.copy(), copy_ns.copy()
    for track in events.tracks_of(rows):
        here = np.flatnonzero(events.track[rows] == track)
        launched = linked[events.track[launch] == track]
        launched = launched[np.argsort(device.launch_ns[launched], kind="stable")]
        if not len(launched):
            continue
        index = np.searchsorted(device.launch_ns[launched], events.end_ns[rows[here]], side="right") - 1
        latest = launched[np.maximum(index, 0)]
        has_kernel = (index >= 0) & (device.launch_ns[latest] >= events.start_ns[rows[here]])
        kernel = device.row[latest[has_kernel]]
        ready_ns[here[has_kernel]], copy_ns[here[has_kernel]] = events.end_ns[kernel], events.duration_ns[kernel]
    return ready_ns, copy_ns
