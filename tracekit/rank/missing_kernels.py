"""Which of the kernels that the host launched are missing in the recording, and whether all are.

A profiler loses device records: its buffers are full, it could not start, or it drops what lies outside of its window
(Kineto, `outOfRange` of GenericActivityProfiler.cpp). The launches are still there, and show what is missing. In whole
recordings of A100, B200, V100 and MI300X each launch has its kernel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tracekit.model.events import ABSENT, Bool, DecodedTrace, EventTable, Int64
from tracekit.rank.kernel_launches import RUNTIME_CATEGORIES, DeviceEvents, graph_captures
from tracekit.rank.other_devices import other_device

# Of CUDA's runtime and driver, HIP and SYCL: cudaLaunchKernelExC, cuLaunchKernelEx, cudaLaunchCooperativeKernel,
# hipExtModuleLaunchKernel, urEnqueueKernelLaunch, cudaGraphLaunch, ...; not cudaLaunchHostFunc, which runs on the host.
_LAUNCH = re.compile(r"Launch\w*Kernel|KernelLaunch|GraphLaunch")
_GRAPH_LAUNCH = re.compile(r"GraphLaunch")
_WAIT_FOR_DEVICE = re.compile(r"DeviceSynchronize|CtxSynchronize")
_KERNELS_OF_A_GRAPH = 100  # where no graph's kernels are recorded: many more than those of one launch
_FEW_LAUNCHES = 10
# Annotations of collectives, and operators that only a GPU runs. (aten::cudnn_is_acceptable runs on CPUs, too.)
_RUNS_ON_GPU = re.compile(
    r"^(?:nccl|xccl):|"
    r"^aten::(?:cudnn_(?:convolution|batch_norm)|_cudnn_rnn|miopen_|_(?:flash|efficient)_attention_forward$)"
)
_GPU_BACKENDS = frozenset({"nccl", "xccl"})  # ROCm's RCCL is called nccl, too
_XPU = re.compile(r"^(?:xpu:)?xccl$|^xpu$|^Intel\(R\)")
_RUNS_ON_CPU = re.compile(r"^gloo:|_for_cpu$")


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelLaunches:
    """n calls that launch kernels. Those that a capture of a graph recorded are left out.

    Attributes:
        row: in the event table, int64 [n]; in order of time if any kernel is missing.
        start_ns: int64 [n].
        kernels: how many kernels each launches, int64 [n]: 1, and of a graph the mean of the graphs that are recorded.
        missing: whether no device event of the call is recorded, bool [n].
        later: of the missing ones those that may not have run before the recording ended, bool [n].
        last_call_ns: when the last call of the device's runtime began, whatever it does; None without any.
    """

    row: Int64
    start_ns: Int64
    kernels: Int64
    missing: Bool
    later: Bool
    last_call_ns: int | None

    def __len__(self) -> int:
        return len(self.row)


def kernel_launches(events: EventTable, device: DeviceEvents) -> KernelLaunches:
    """Return the calls that launch kernels. A call without correlation id tells nothing, and is left out."""
    calls = np.flatnonzero(events.in_category(*RUNTIME_CATEGORIES))
    launches = events.named(lambda name: _LAUNCH.search(name) is not None)
    row = np.flatnonzero(launches & events.in_category(*RUNTIME_CATEGORIES))
    row = row[events.correlation[row] != ABSENT]
    is_graph = events.named(lambda name: _GRAPH_LAUNCH.search(name) is not None)
    # A graph of which only copies are recorded lacks its kernels.
    shown = device.is_kernel | ~device.linked | ~is_graph[device.launch_row]
    has_kernel = np.zeros(len(events), dtype=np.bool_)
    has_kernel[device.launch_row[device.linked & shown]] = True
    missing = ~has_kernel[row]
    kernels = np.ones(len(row), dtype=np.int64)
    later = np.zeros(len(row), dtype=np.bool_)
    if missing.any():  # rarely: all that follows is about these
        row = _once_in_order(events, row)
        # Of two calls with one id only one is linked to the kernel.
        missing = ~np.isin(events.correlation[row], events.correlation[device.row[shown]])
        ran = ~(missing & graph_captures(events).covers(events.start_ns[row]))
        row, missing = row[ran], missing[ran]
        kernels = _kernels(events, device, row)
        if _kernels_of_others(events, device, row) >= kernels[missing].sum():
            missing[:] = False
        later = _later(events, calls, row, missing)
    return KernelLaunches(
        row=row,
        start_ns=events.start_ns[row],
        kernels=kernels,
        missing=missing,
        later=later,
        last_call_ns=int(events.start_ns[calls].max()) if len(calls) else None,
    )


def graph_extents(events: EventTable, device: DeviceEvents) -> tuple[Int64, Int64]:
    """Return when the first recorded event of each replay of a graph began, and when the last one ended, int64 [g]."""
    of_graph = np.zeros(len(events) + 1, dtype=np.bool_)  # the last entry answers for ABSENT
    of_graph[_named(events, device.launch_row[device.linked], _GRAPH_LAUNCH)] = True
    found = of_graph[device.launch_row]
    replays, index = np.unique(device.launch_row[found], return_inverse=True)
    start_ns, end_ns = np.full(len(replays), np.iinfo(np.int64).max), np.full(len(replays), np.iinfo(np.int64).min)
    np.minimum.at(start_ns, index, events.start_ns[device.row[found]])
    np.maximum.at(end_ns, index, events.end_ns[device.row[found]])
    return start_ns, end_ns


def records_end_ns(events: EventTable, launches: KernelLaunches, *, stopped: bool = False) -> int | None:
    """Return when the last call of the device's runtime began, if records end there and operators go on; else None.

    A profiler whose buffers are full records neither launches nor kernels from then on. The operators after the last
    call tell how many launches are missing: each name as many as it had before. `stopped` says that the profiler itself
    reported its end. Then one operator is enough.
    """
    end_ns = launches.last_call_ns
    if end_ns is None or not len(launches):
        return None
    after = np.flatnonzero(events.start_ns > end_ns)
    if not len(after):
        return None
    is_operator = events.in_category("cpu_op")
    after = after[is_operator[after]]
    if stopped or not len(after):
        return end_ns if len(after) else None
    before = np.flatnonzero(is_operator & (events.start_ns <= end_ns))
    launched_by = np.sort(events.external_id[launches.row])
    ids = events.external_id[before]
    by_operator = np.searchsorted(launched_by, ids, side="right") - np.searchsorted(launched_by, ids, side="left")
    by_operator[ids == ABSENT] = 0
    names = len(events.strings)
    runs = np.bincount(events.name[before], minlength=names)
    rate = np.bincount(events.name[before], weights=by_operator, minlength=names) / np.maximum(runs, 1)
    return end_ns if rate[events.name[after]].sum() > _FEW_LAUNCHES else None


def unrecorded_device(trace: DecodedTrace, device: DeviceEvents, launches: KernelLaunches) -> str | None:
    """Return why nothing is known of what the rank's device did; None if its kernels are recorded, or it has none.

    That a trace names a GPU means nothing by itself: the host of a CPU rank may have one.
    """
    if (other := other_device(trace)) is not None:
        return f"it computed on a device that tracekit does not read, {other}"
    if device.is_kernel.any():
        return None
    if launches.missing.any():
        return f"none of the {launches.missing.sum():,} kernels that it launched is recorded"
    if not trace.complete and _names_gpu(trace):
        return "the file ends before its kernels"
    if len(device.row):
        return None
    return f"it was recorded without {device_activity(trace)} activity" if _computes_on_gpu(trace) else None


def device_activity(trace: DecodedTrace) -> str:
    """Return the member of ProfilerActivity that records the rank's GPU: XPU of Intel, or CUDA, for ROCm, too."""
    header = trace.header
    kinds = (header.backend or "", *header.device_names, "" if header.metadata is None else header.metadata.device.type)
    is_xpu = trace.events.in_category("xpu_runtime", "xpu_driver").any() or any(map(_XPU.search, kinds))
    return "XPU" if is_xpu else "CUDA"


def _names_gpu(trace: DecodedTrace) -> bool:
    metadata = trace.header.metadata
    return bool(trace.header.device_names) if metadata is None else metadata.device.type != "cpu"


def _computes_on_gpu(trace: DecodedTrace) -> bool:
    """Return whether the operators, the job's backend or tracekit's metadata show that this rank computes on a GPU."""
    events, header = trace.events, trace.header
    if events.named(lambda name: _RUNS_ON_GPU.search(name) is not None).any():
        return True
    if events.named(lambda name: _RUNS_ON_CPU.search(name) is not None).any():
        return False
    on_device = header.metadata is not None and header.metadata.device.type != "cpu"
    return on_device or header.backend in _GPU_BACKENDS


def _named(events: EventTable, row: Int64, pattern: re.Pattern[str]) -> Int64:
    """Return those of the events `row` whose names match."""
    names = events.name[row]
    matches = np.zeros(len(events.strings) + 1, dtype=np.bool_)  # the last entry answers for ABSENT
    for name in np.flatnonzero(np.bincount(names + 1, minlength=1)[1:]).tolist():
        matches[name] = pattern.search(events.strings[name]) is not None
    return row[matches[names]]


def _once_in_order(events: EventTable, row: Int64) -> Int64:
    """Return some events in order of time, without duplicates."""
    mask = np.zeros(len(events), dtype=np.bool_)
    mask[row] = True
    return events.each_once(mask)


def _kernels(events: EventTable, device: DeviceEvents, row: Int64) -> Int64:
    """Return int64 [n]: how many kernels each call of `row` launches."""
    kernels = np.ones(len(row), dtype=np.int64)
    is_graph = np.isin(row, _named(events, row, _GRAPH_LAUNCH))
    if is_graph.any():
        count = np.bincount(device.launch_row[device.linked], minlength=len(events))[row[is_graph]]
        recorded = count[count > 0]
        kernels[is_graph] = max(round(float(recorded.mean())), 1) if len(recorded) else _KERNELS_OF_A_GRAPH
    return kernels


def _kernels_of_others(events: EventTable, device: DeviceEvents, row: Int64) -> int:
    """Return how many kernels have no launch of the calls `row`, or one that launched another kernel.

    roctracer gives some kernels the correlation id of a neighbour, and tools lose ids. So these may be the kernels of
    launches that seem to have none.
    """
    count = np.bincount(device.launch_row[device.linked & device.is_kernel], minlength=len(events))
    of_one_kernel = np.setdiff1d(row, _named(events, row, _GRAPH_LAUNCH))
    unlinked = device.is_kernel & ~device.linked & ~device.before_recording
    return int(np.maximum(count[of_one_kernel] - 1, 0).sum() + unlinked.sum())


def _later(events: EventTable, calls: Int64, row: Int64, missing: Bool) -> Bool:
    """Return a mask [n] of the missing kernels that may not have run before the recording ended.

    They were launched after every kernel that is recorded, and the host did not wait for the device after that.
    """
    if missing.all() or not missing.any():
        return np.zeros(len(row), dtype=np.bool_)
    waits_ns = events.start_ns[_named(events, calls, _WAIT_FOR_DEVICE)]
    last_ns = max(int(events.start_ns[row[~missing]].max()), int(waits_ns.max(initial=np.iinfo(np.int64).min)))
    return missing & (events.start_ns[row] > last_ns)
