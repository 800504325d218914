"""When the host of a GPU rank launched communication, and what each had to wait for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tracekit.analysis.events.kernel_launches import BEFORE_RECORDING
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.analysis.whatif.parts import CUTS
from tracekit.analysis.whatif.per_rank.cuts import Cuts, plain_cuts
from tracekit.analysis.whatif.per_rank.kernel_starts import RELEASED_NS, KernelStarts
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, ROUNDED_NS, Int64

__all__ = ["communication_launches"]

_LAUNCH = CUTS.index("launch")
_EARLIER_ENDS = 4  # so many ends before its start are looked at for what communication waited for
_INDEPENDENT_SHARE = 0.2  # of the collectives of a group and kind that could: so many ran before earlier kernels ended


def communication_launches(recorded: RecordedSteps, kernels: KernelStarts) -> Cuts:
    """Return a cut at each launch of communication, and at each message whose launch is another call."""
    communication = recorded.lanes.communication_events
    rows = np.flatnonzero(communication.launch_ns != BEFORE_RECORDING)
    launch_ns, start_ns = communication.launch_ns[rows], communication.start_ns[rows]
    position = np.searchsorted(kernels.launch_ns, launch_ns, side="left")
    last = np.searchsorted(kernels.launch_ns, launch_ns, side="right")
    for i in np.flatnonzero(last > position).tolist():  # one launch of a graph: its kernels run in order of time
        position[i] += np.searchsorted(kernels.start_ns[position[i] : last[i]], start_ns[i], side="left")
    before_ns = np.where(position > 0, np.append(kernels.reach_ns, ABSENT)[position - 1], ABSENT)
    end_ns, stream = communication.end_ns[rows], recorded.trace.events.track[communication.row[rows]].astype(np.int64)
    ran_before = start_ns < before_ns - ROUNDED_NS
    # Nothing can be learned from one that was launched after the kernels, or queued behind other communication.
    telling = (launch_ns < before_ns) & (_ends_before(start_ns, end_ns, stream) < before_ns)
    sort = communication.group[rows].astype(np.int64) * len(KINDS) + communication.kind[rows]
    numbers, number = np.unique(sort, return_inverse=True)
    independent = np.bincount(number, ran_before, len(numbers))
    needs = ~ran_before & (independent <= _INDEPENDENT_SHARE * np.bincount(number, telling, len(numbers)))[number]
    since_ns = np.maximum(np.where(needs, before_ns, ABSENT), launch_ns)
    at_launch = replace(
        plain_cuts(_LAUNCH, launch_ns, kernels, position),
        awaited_communication_ns=_awaited_communication(start_ns, end_ns, stream, since_ns),
        communication_end_ns=end_ns,
        needs_kernels=needs.astype(np.int64),
    )
    messages = recorded.messages
    others_ns = messages.issue_ns[(messages.end_ns != ABSENT) & ~np.isin(messages.end_ns, end_ns)]
    elsewhere = plain_cuts(_LAUNCH, np.setdiff1d(others_ns, launch_ns), kernels)
    elsewhere = replace(elsewhere, needs_kernels=np.ones(len(elsewhere.what), dtype=np.int64))
    return Cuts.concatenate([at_launch, elsewhere])


def _awaited_communication(start_ns: Int64, end_ns: Int64, stream: Int64, since_ns: Int64) -> Int64:
    """Return the end of the communication that each of n events waited for, or -1: int64 [n].

    Communication waits for what is before it on its stream, and for what its rank's compute stream waits for. Then it
    begins as soon as that has ended.

    stream: of each event, int64 [n]. since_ns: when each could have begun but for other communication, int64 [n].
    """
    by_end = np.argsort(end_ns, kind="stable")
    place = np.searchsorted(end_ns[by_end], start_ns + ROUNDED_NS, side="right") - 1
    result = np.full(len(start_ns), ABSENT, dtype=np.int64)
    ended_ns = _ends_before(start_ns, end_ns, stream)
    since_ns = np.maximum(since_ns, ended_ns)
    for _ in range(_EARLIER_ENDS):
        at = by_end[np.maximum(place, 0)]
        found = (place >= 0) & (stream[at] != stream) & (result == ABSENT)
        found &= (start_ns - end_ns[at] <= RELEASED_NS) & (end_ns[at] > since_ns + ROUNDED_NS)
        result[found] = end_ns[at[found]]
        place = place - 1
    return np.where(result == ABSENT, ended_ns, result)


def _ends_before(start_ns: Int64, end_ns: Int64, stream: Int64) -> Int64:
    """Return when the events before each one on its stream had ended, or -1: int64 [n]."""
    result = np.full(len(start_ns), ABSENT, dtype=np.int64)
    for number in np.unique(stream).tolist():
        here = np.flatnonzero(stream == number)
        here = here[np.argsort(start_ns[here], kind="stable")]
        result[here[1:]] = np.maximum.accumulate(end_ns[here])[:-1]
    return result
