"""When the host of a GPU rank waited for its device, and for what."""

from __future__ import annotations

import re

import numpy as np

from tracekit.analysis.events.kernel_launches import RUNTIME_CATEGORIES
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.analysis.whatif.parts import CUTS
from tracekit.analysis.whatif.per_rank.cuts import Cuts
from tracekit.analysis.whatif.per_rank.kernel_starts import KernelStarts
from tracekit.model.events import ABSENT, ROUNDED_NS

__all__ = ["synchronisations", "unrecorded_synchronisations"]

_SYNCHRONISES = re.compile(r"\w*Synchronize|(?:cuda|hip)(?:Memcpy|MemcpyWithStream|Free)")
_SYNCHRONISE = CUTS.index("synchronise")
_WOKEN_NS = 30_000  # from the end of what a host waits for to the end of its call
_LONG_NS = 200_000  # a host that is not heard of for so long may be waiting


def synchronisations(recorded: RecordedSteps, kernels: KernelStarts) -> Cuts:
    """Return a cut at each call that waits for the device, on threads that launch kernels, with what it waited for.

    That is the kernel that was launched last before the call, if it has ended by the end of the call. Otherwise it is
    the kernel or communication that ended right before the end of the call.
    """
    trace, lanes = recorded.trace, recorded.lanes
    launch_rows = lanes.device_events.launch_row[lanes.device_events.linked]
    events = trace.events
    synchronises = events.named(lambda name: _SYNCHRONISES.fullmatch(name) is not None)
    rows = np.flatnonzero(synchronises & events.in_category(*RUNTIME_CATEGORIES))
    launching = np.bincount(events.track[launch_rows], minlength=len(events.tracks)) > 0
    rows = rows[launching[events.track[rows]]]
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    begin_ns, until_ns = events.start_ns[rows], events.end_ns[rows]
    by_ns = until_ns + ROUNDED_NS
    position = np.searchsorted(kernels.launch_ns, begin_ns, side="left")
    last = np.minimum(np.searchsorted(kernels.reach_ns, by_ns, side="right"), position) - 1
    kernel_ns = np.append(kernels.reach_ns, ABSENT)[last]
    ends_ns = np.sort(lanes.communication_events.end_ns)
    over_ns = np.append(ends_ns, ABSENT)[np.searchsorted(ends_ns, by_ns, side="right") - 1]
    for_all = last == position - 1
    woken_by_kernel, woken_by_communication = (
        (time_ns > begin_ns) & (until_ns - time_ns <= _WOKEN_NS) for time_ns in (kernel_ns, over_ns)
    )
    for_communication = woken_by_communication & (over_ns > kernel_ns + ROUNDED_NS)
    none = np.full(len(rows), ABSENT, dtype=np.int64)
    for_kernel = (kernel_ns != ABSENT) & (for_all | (woken_by_kernel & ~for_communication))
    return Cuts(
        what=np.full(len(rows), _SYNCHRONISE, dtype=np.int64),
        position=position,
        begin_ns=begin_ns,
        until_ns=until_ns,
        awaited_kernel_ns=np.where(for_kernel, kernel_ns, ABSENT),
        awaited_communication_ns=np.where(for_communication, over_ns, ABSENT),
        communication_end_ns=none,
        needs_kernels=none,
    )


def unrecorded_synchronisations(recorded: RecordedSteps, kernels: KernelStarts, synchronised: Cuts) -> Cuts:
    """Return a cut where the host waited for its device although no call shows it.

    The host launched nothing and ran no operator for a long time, and went on right when all that it had launched was
    over.
    """
    trace, lanes = recorded.trace, recorded.lanes
    events, device = trace.events, lanes.device_events
    linked = np.flatnonzero(device.linked)
    linked = linked[np.argsort(device.launch_ns[linked], kind="stable")]
    launch_ns = device.launch_ns[linked]
    steps_ns = np.append(lanes.windows.host_start_ns, lanes.windows.host_end_ns)
    points_ns = np.sort(np.concatenate((launch_ns[1:][np.diff(launch_ns) >= _LONG_NS], steps_ns)))
    place = np.searchsorted(launch_ns, points_ns, side="left") - 1
    points_ns, place = points_ns[place >= 0], place[place >= 0]
    last_ns = launch_ns[place]
    done_ns = np.maximum.accumulate(events.end_ns[device.row[linked]])[place]
    woken_ns = points_ns - done_ns
    found = (points_ns - last_ns >= _LONG_NS) & (done_ns - last_ns >= _LONG_NS // 2)
    found &= (woken_ns >= -ROUNDED_NS) & (woken_ns <= _WOKEN_NS)
    found &= np.searchsorted(synchronised.until_ns, points_ns) <= np.searchsorted(synchronised.until_ns, last_ns)
    points_ns, last_ns, done_ns = points_ns[found], last_ns[found], done_ns[found]
    if not len(points_ns):
        return Cuts.empty()
    # Rows are nearly in order of time, which a stable sort makes use of.
    begins_ns = np.sort(events.start_ns[events.in_category("cpu_op", "Operator")], kind="stable")
    first, stop = (np.searchsorted(begins_ns, t) for t in (last_ns + _LONG_NS // 4, done_ns - ROUNDED_NS))
    quiet = first >= stop
    points_ns, last_ns, done_ns = points_ns[quiet], last_ns[quiet], done_ns[quiet]
    kernel_ns = np.append(kernels.reach_ns, ABSENT)[np.searchsorted(kernels.launch_ns, last_ns, side="right") - 1]
    none = np.full(len(points_ns), ABSENT, dtype=np.int64)
    return Cuts(
        what=np.full(len(points_ns), _SYNCHRONISE, dtype=np.int64),
        position=np.searchsorted(kernels.launch_ns, points_ns, side="left"),
        begin_ns=np.minimum(last_ns + _LONG_NS // 4, points_ns),
        until_ns=np.minimum(done_ns, points_ns),
        awaited_kernel_ns=np.where(kernel_ns == done_ns, done_ns, ABSENT),
        awaited_communication_ns=np.where(kernel_ns == done_ns, ABSENT, done_ns),
        communication_end_ns=none,
        needs_kernels=none,
    )
