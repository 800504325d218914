"""What a recording of a GPU rank lacks: in some of its steps, or as a whole.

A step without its kernels would seem idle, and a rank without any kernel would seem to compute on its CPU.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from tracekit.analysis.events.kernel_launches import DeviceEvents
from tracekit.analysis.events.missing_kernels import KernelLaunches, records_end_ns
from tracekit.analysis.timeline.completeness.lost_compute import windows_without_compute
from tracekit.analysis.timeline.completeness.lost_copies import HostCopies
from tracekit.analysis.timeline.steps import StepWindows
from tracekit.model.events import Bool, DecodedTrace, EventTable, Int64

__all__ = ["unrecorded_device", "with_lost_records"]

# A step of which more kernels are missing is incomplete. In whole recordings none are.
_LOST_SHARE = 0.01
# Messages of Kineto whose recording of the device ended early (CuptiActivityApi.cpp, GenericActivityProfiler.cpp).
_STOPPED = re.compile(r"terminating tracing|stopped by|stopped early")
# Annotations of collectives, and operators that only a GPU runs. (aten::cudnn_is_acceptable runs on CPUs, too.)
_RUNS_ON_GPU = re.compile(
    r"^(?:nccl|xccl):|"
    r"^aten::(?:cudnn_(?:convolution|batch_norm)|_cudnn_rnn|miopen_|_(?:flash|efficient)_attention_forward$)"
)
_GPU_BACKENDS = frozenset({"nccl", "xccl"})  # ROCm's RCCL is called nccl, too
# Categories of Kineto for what accelerators do that are no GPUs (ActivityType.cpp).
_OTHER_DEVICE = re.compile(r"(mtia|hpu|privateuse1)_(?:ccp_events|op|runtime|driver|workloadd)")
_RUNS_ON_CPU = re.compile(r"^gloo:|_for_cpu$")


def unrecorded_device(trace: DecodedTrace, device: DeviceEvents, launches: KernelLaunches) -> str | None:
    """Return why nothing is known of what the rank's GPU did; None if its kernels are recorded, or it has no GPU.

    That a trace names a GPU means nothing by itself: the host of a CPU rank may have one.
    """
    if device.is_kernel.any():
        return None
    if launches.missing.any():
        return f"none of the {launches.missing.sum():,} kernels that it launched is recorded"
    if not trace.complete and _names_gpu(trace):
        return "the file ends before its kernels"
    if len(device.row):
        return None
    for category in trace.events.strings:
        if (other := _OTHER_DEVICE.fullmatch(category)) and trace.events.in_category(category).any():
            return f"it computed on a device of kind {other[1]}, whose records tracekit does not read"
    if not _computes_on_gpu(trace):
        return None
    return "it was recorded without CUDA activity"


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


def with_lost_records(
    trace: DecodedTrace,
    windows: StepWindows,
    device: DeviceEvents,
    computes: Bool,
    launches: KernelLaunches,
    copies: HostCopies,
) -> StepWindows:
    """Return the windows; those that lack device records are incomplete.

    A file that was cut off lacks records anyway: its windows are returned as they are.
    """
    if not trace.complete:
        return windows
    lost = _lost_windows(trace, windows, device, computes, launches)
    if copies.missing.any():
        lost |= _windows_without_copies(trace, windows, device, copies)
    without_compute = windows_without_compute(trace.events, windows, device, computes) & ~lost
    lost |= without_compute
    lost[1:] |= without_compute[:-1]  # its kernels may have delayed the next step
    return replace(windows, lost=lost, without_compute=without_compute, complete=windows.complete & ~lost)


def _lost_windows(
    trace: DecodedTrace,
    windows: StepWindows,
    device: DeviceEvents,
    computes: Bool,
    launches: KernelLaunches,
) -> Bool:
    """Return a mask [s] of the windows of whose kernels too many are missing, or in which all records end.

    A kernel without a launch may be one that seems to be missing, with another correlation id.
    """
    events, count = trace.events, len(windows)
    lost: Bool = np.zeros(count, dtype=np.bool_)
    if launches.missing.any():
        # What runs after the recording is no part of a window that ends with it.
        missing = launches.missing & ~launches.later if windows.source == "recording" else launches.missing
        kernels = _sums(windows.index_of(launches.start_ns), launches.kernels, count)
        missing_kernels = _sums(windows.index_of(launches.start_ns[missing]), launches.kernels[missing], count)
        missing_kernels -= _unlinked(events, windows, device, device.is_kernel)
        lost = missing_kernels > _LOST_SHARE * kernels
    stopped = any(_STOPPED.search(message) for message in trace.header.profiler_messages)
    ended_ns = records_end_ns(events, launches, stopped=stopped)
    if ended_ns is not None:
        lost |= np.append(windows.host_start_ns[1:], windows.host_end_ns) > ended_ns
    if lost.any():
        lost[1:] |= lost[:-1] & _begins_are_unknown(windows, device, computes, launches)
    return lost


def _windows_without_copies(
    trace: DecodedTrace, windows: StepWindows, device: DeviceEvents, copies: HostCopies
) -> Bool:
    """Return a mask [s] of the windows of whose copies too many are missing.

    A copy without a call may be one that seems to be missing, with another correlation id.
    """
    calls, missing = (
        _sums(windows.index_of(start_ns), np.ones(len(start_ns), dtype=np.int64), len(windows))
        for start_ns in (copies.start_ns, copies.start_ns[copies.missing])
    )
    others = _unlinked(trace.events, windows, device, ~device.is_kernel)
    return np.asarray(missing - others > _LOST_SHARE * calls)


def _unlinked(events: EventTable, windows: StepWindows, device: DeviceEvents, which: Bool) -> Int64:
    """Return how many device events of `which`, bool [m], lack their launch in each window, int64 [s]."""
    unlinked = which & ~device.linked & ~device.before_recording
    index = windows.index_of_device(device, events.start_ns[device.row])[unlinked]
    return _sums(index, np.ones(len(index), dtype=np.int64), len(windows))


def _sums(index: Int64, values: Int64, count: int) -> Int64:
    """Return int64 [count]: the sum of the values at each index; those at -1 do not count."""
    inside = index >= 0
    return np.bincount(index[inside], weights=values[inside], minlength=count).astype(np.int64)


def _begins_are_unknown(windows: StepWindows, device: DeviceEvents, computes: Bool, launches: KernelLaunches) -> Bool:
    """Return a mask [s - 1] of the windows but the first that a missing kernel may have delayed.

    It was launched before the step, and after every compute kernel before the step that is recorded.
    """
    begins_ns = windows.host_start_ns[1:]
    missing_ns = launches.start_ns[launches.missing]
    compute_ns = np.sort(device.launch_ns[computes])
    never_ns = np.iinfo(np.int64).min
    last_missing_ns, last_compute_ns = (
        np.append(times_ns, never_ns)[np.searchsorted(times_ns, begins_ns, side="left") - 1]
        for times_ns in (missing_ns, compute_ns)
    )
    unknown: Bool = last_missing_ns > last_compute_ns
    return unknown
