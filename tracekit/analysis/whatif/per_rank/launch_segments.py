"""What the host of a GPU rank launched between the points at which it, or its device, depends on anything else."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.pipeline.parts import Actions
from tracekit.analysis.replay.operation_graph import NO_TRAINING
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.analysis.timeline.segments import loading_times
from tracekit.analysis.whatif.parts import CUTS, Interruptions, LaunchSegments
from tracekit.analysis.whatif.per_rank.communication_launches import communication_launches
from tracekit.analysis.whatif.per_rank.cuts import Cuts, plain_cuts
from tracekit.analysis.whatif.per_rank.kernel_starts import KernelStarts, kernel_starts
from tracekit.analysis.whatif.per_rank.synchronisations import synchronisations, unrecorded_synchronisations
from tracekit.model.events import ABSENT, Int64
from tracekit.model.intervals import Intervals

__all__ = ["interruptions", "launch_segments"]

_EDGES = ("start_ns", "end_ns")
_SHORTEST_NS = 50_000  # of logging that the host's time is cut at
_LINKED_SHARE = 0.9  # of the kernels: with fewer launches the host's time is not known
_BEGIN, _WAIT, _RESUME, _STEP, _END, _MARK = (
    CUTS.index(what) for what in ("begin", "wait", "resume", "step", "end", "mark")
)


def interruptions(recorded: RecordedSteps) -> Interruptions:
    """Return when a CPU rank does not train; a GPU rank's segments tell it."""
    return Interruptions.empty() if recorded.lanes.device == "gpu" else recorded.once(_interruptions)


def _interruptions(recorded: RecordedSteps) -> Interruptions:
    pauses = recorded.phases.pauses
    times = {
        "data": recorded.once(loading_times) - pauses.checkpoint - pauses.evaluation,
        "checkpoint": pauses.checkpoint,
        "evaluation": pauses.evaluation,
        "logging": _long(pauses.logging),
    }
    begin_ns, end_ns = (np.concatenate([getattr(times[what], edge) for what in NO_TRAINING]) for edge in _EDGES)
    what = np.repeat(np.arange(len(NO_TRAINING), dtype=np.int32), [len(times[what]) for what in NO_TRAINING])
    order = np.argsort(begin_ns, kind="stable")
    return Interruptions(what=what[order], begin_ns=begin_ns[order], end_ns=end_ns[order])


def _long(time: Intervals) -> Intervals:
    """Return the parts of some time that are worth a cut."""
    is_long = time.duration_ns >= _SHORTEST_NS
    return Intervals(time.start_ns[is_long], time.end_ns[is_long])


def launch_segments(recorded: RecordedSteps, actions: Actions) -> LaunchSegments:
    """Return the segments of one recording; none for a CPU rank, or if the trace does not show the launches.

    actions: of a pipeline; segments are cut where their kernels begin and end.
    """
    lanes = recorded.lanes
    device = lanes.device_events
    if lanes.device == "cpu":
        return LaunchSegments.empty()
    known = device.linked | device.before_recording
    if not known.any() or known.mean() < _LINKED_SHARE:
        return LaunchSegments.empty()
    kernels = kernel_starts(recorded.trace, lanes)
    cuts = _cuts(recorded, kernels, actions)
    return _segments(recorded, kernels, cuts)


def _cuts(recorded: RecordedSteps, kernels: KernelStarts, actions: Actions) -> Cuts:
    """Return the cuts in order of launch."""
    windows, interrupted = recorded.lanes.windows, recorded.once(_interruptions)
    launches = communication_launches(recorded, kernels)
    synchronised = synchronisations(recorded, kernels)
    unrecorded = unrecorded_synchronisations(recorded, kernels, synchronised)
    waiting = np.flatnonzero(kernels.awaited_ns != ABSENT)
    marked = np.searchsorted(kernels.reach_ns, synchronised.awaited_kernel_ns, side="right")
    marked = marked[(synchronised.awaited_kernel_ns != ABSENT) & (marked < synchronised.position)]
    borders_ns = np.concatenate((actions.start_ns, actions.end_ns))
    borders = np.searchsorted(np.maximum.accumulate(kernels.start_ns), borders_ns, side="left")
    marked = np.unique(np.concatenate((marked, borders[borders < len(kernels)])))
    first_ns = min(
        int(windows.host_start_ns[0]), int(kernels.launch_ns[0]) if len(kernels) else int(windows.start_ns[0])
    )
    parts = [
        plain_cuts(_BEGIN, np.array([first_ns]), kernels),
        launches,
        plain_cuts(_WAIT, kernels.launch_ns[waiting], kernels, waiting, kernels.awaited_ns[waiting]),
        synchronised,
        unrecorded,
        plain_cuts(_MARK, kernels.launch_ns[marked], kernels, marked),
        *(
            plain_cuts(CUTS.index(what), interrupted.begin_ns[interrupted.what == number], kernels)
            for number, what in enumerate(NO_TRAINING)
        ),
        plain_cuts(_RESUME, interrupted.end_ns, kernels),
        plain_cuts(_STEP, windows.host_start_ns, kernels),
        plain_cuts(_END, np.array([windows.host_end_ns]), kernels),
    ]
    cuts = Cuts.concatenate(parts)
    # At one time the beginning comes first, and a wait last: it is the next kernel that waits.
    last = (cuts.what == _WAIT).astype(np.int64) - (cuts.what == _BEGIN)
    return cuts.rows(np.lexsort((cuts.what, last, cuts.begin_ns, cuts.position)))


def _segments(recorded: RecordedSteps, kernels: KernelStarts, cuts: Cuts) -> LaunchSegments:
    count, windows = len(cuts.what), recorded.lanes.windows
    of_kernel = np.cumsum(np.bincount(cuts.position, minlength=len(kernels) + 1))[: len(kernels)] - 1
    first = int(np.searchsorted(of_kernel, 0))  # the kernels before it were launched before the first cut
    work_ns = kernels.gap_ns + kernels.busy_ns
    device_ns = np.bincount(of_kernel[first:], work_ns[first:], count).astype(np.int64)
    kernels_in = np.bincount(of_kernel[first:], minlength=count)
    launched_so_far = np.append(cuts.position[1:], len(kernels))
    device_end_ns = np.append(kernels.reach_ns, ABSENT)[launched_so_far - 1]
    limit_host_ns, limit_device_ns = _limits(kernels.rows(slice(first, None)), cuts, of_kernel[first:])
    window = windows.index_of(cuts.begin_ns)
    return LaunchSegments(
        what=cuts.what.astype(np.int32),
        step=np.where(window >= 0, windows.step[window], ABSENT),
        begin_ns=cuts.begin_ns,
        until_ns=cuts.until_ns,
        device_ns=np.where(kernels_in > 0, device_ns, ABSENT),
        device_end_ns=device_end_ns,
        limit_host_ns=limit_host_ns,
        limit_device_ns=limit_device_ns,
        awaited_kernel_ns=cuts.awaited_kernel_ns,
        awaited_communication_ns=cuts.awaited_communication_ns,
        communication_end_ns=cuts.communication_end_ns,
        needs_kernels=cuts.needs_kernels.astype(np.int32),
    )


def _limits(kernels: KernelStarts, cuts: Cuts, of_kernel: Int64) -> tuple[Int64, Int64]:
    """Return `limit_host_ns` and `limit_device_ns` of `LaunchSegments`.

    After each kernel's launch come its latency, its own time, and the time of the kernels behind it. The last kernel of
    a host segment ends no earlier than the latest of these.

    of_kernel: the cut before each kernel, int64 [n].
    """
    limit_host_ns, limit_device_ns = np.full((2, len(cuts)), ABSENT, dtype=np.int64)
    if not len(kernels):
        return limit_host_ns, limit_device_ns
    is_host = cuts.what != _WAIT
    cuts_host = np.flatnonzero(is_host)
    number = (np.cumsum(is_host) - 1)[of_kernel]  # of the host segment
    opening = np.diff(number, prepend=-1) != 0
    opens, place = np.flatnonzero(opening), np.cumsum(opening) - 1
    done_ns = np.cumsum(kernels.gap_ns + kernels.busy_ns)
    last_ns = done_ns[np.append(opens[1:], len(kernels)) - 1]
    tail_ns = last_ns[place] - done_ns + kernels.busy_ns
    begun_ns = kernels.launch_ns + kernels.latency_ns - cuts.until_ns[cuts_host][number]
    begun_ns = np.maximum(begun_ns, 0)
    deciding = _last_maximum(begun_ns + tail_ns, place, opens)
    last_row = np.append(cuts_host[1:], len(cuts))[number[opens]] - 1
    limit_host_ns[last_row], limit_device_ns[last_row] = begun_ns[deciding], tail_ns[deciding]
    return limit_host_ns, limit_device_ns


def _last_maximum(values: Int64, number: Int64, first: Int64) -> Int64:
    """Return where the largest value of each of c numbers is, int64 [c].

    number: of each value, int64 [n], ascending from 0. first: where the values of each number begin, int64 [c].
    """
    largest = np.flatnonzero(values == np.maximum.reduceat(values, first)[number])
    return largest[np.searchsorted(number[largest], np.arange(len(first)), side="right") - 1]
