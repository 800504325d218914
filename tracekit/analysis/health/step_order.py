"""Whether the steps of a recording can be those of one process on one clock, and whether a time in it must be wrong."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tracekit.analysis.health.check import Doubt, Evidence
from tracekit.model.events import ROUNDED_NS
from tracekit.model.ranks import format_ranges

__all__ = ["device_clock", "incomplete_steps", "late_events", "mixed_processes", "step_order", "steps_without_device"]

_SHOWN = 4  # processes
_MOST_OF_A_STEP = 0.5  # by which a device's clock may be off: more may be a jump of the host's clock


def mixed_processes(evidence: Evidence) -> Iterator[Doubt]:
    """Yield that operators are of several processes.

    Kineto records one process, so the operators of others come from other files. Frames of Python may have pid 0.
    """
    events = evidence.trace.events
    tracks = np.flatnonzero(np.bincount(events.track[events.in_category("cpu_op", "Operator")])).tolist()
    processes = sorted({str(events.tracks[track].pid) for track in tracks} - {""})
    if len(processes) > 1:
        shown = ", ".join(processes[:_SHOWN])
        yield Doubt(reason=f"it mixes the operators of {len(processes)} processes (pid {shown})")


def step_order(evidence: Evidence) -> Iterator[Doubt]:
    """Yield why the steps cannot follow each other in one recording."""
    steps = evidence.windows.host
    numbers, count = np.unique(steps.step, return_counts=True)
    overlaps = steps.closed[:-1] & (steps.end_ns[:-1] > steps.start_ns[1:] + ROUNDED_NS)
    if (count > 1).any():
        repeated = numbers[count > 1].tolist()
        what = f"step {repeated[0]} is" if len(repeated) == 1 else f"steps {format_ranges(repeated)} are"
        yield Doubt(reason=f"{what} in it more than once")
    elif (np.diff(steps.step) < 0).any():
        yield Doubt(reason="its steps are not in the order of their numbers (its clock was set back?)")
    elif overlaps.any():
        place = int(np.argmax(overlaps))
        pair = f"steps {steps.step[place]} and {steps.step[place + 1]}"
        yield Doubt(reason=f"{pair} overlap in time (its clock was set back?)")


def device_clock(evidence: Evidence) -> Iterator[Doubt]:
    """Yield by how much kernels begin before they are launched, for which all device times were shifted."""
    behind_ns, windows = evidence.lanes.device_behind_ns, evidence.windows
    if not behind_ns:
        return
    steps_ns = np.diff(np.append(windows.host_start_ns, windows.host_end_ns))
    if windows.source != "recording" and behind_ns > _MOST_OF_A_STEP * steps_ns.min():
        yield Doubt(
            reason=f"kernels begin {behind_ns / 1e6:,.3f} ms before they are launched, which is too much to correct"
        )
    else:
        yield Doubt(
            text=f"kernels begin up to {behind_ns / 1e6:,.3f} ms before they are launched: "
            "the device's clock is behind; all device times are taken as later by as much"
        )


def late_events(evidence: Evidence) -> Iterator[Doubt]:
    """Yield the steps behind an event that ends long after the profiler did.

    The profiler ends when its own span does, and the device has no work left then. An event may seem to end a little
    later, as clocks differ. If it ends later by more than the whole recording took, its duration is wrong, or the clock
    was set at any time since the last event before it.
    """
    events, windows = evidence.trace.events, evidence.windows
    by_profiler = events.in_category("Trace") & (events.duration_ns > 0)
    if not by_profiler.any():
        return
    begin_ns, end_ns = int(events.start_ns[by_profiler].min()), int(events.end_ns[by_profiler].max())
    end_ns = max(end_ns, int(windows.host_start_ns[-1]))  # where the clock was set before, the span tells too little
    is_late = events.end_ns > end_ns + (end_ns - begin_ns)
    if is_late.any():
        others_ns = int(events.start_ns[~is_late].max(initial=begin_ns))
        steps = windows.end_ns > min(int(events.start_ns[is_late].min()), others_ns)
        late_ns = int(events.end_ns[is_late].max()) - end_ns
        reason = f"its last event ends {late_ns / 1e6:,.3f} ms after the recording does"
        numbers = format_ranges(windows.step[steps].tolist())
        yield Doubt(text=f"{reason}: step {numbers} does not count", reason=reason, steps=steps)


def incomplete_steps(evidence: Evidence) -> Iterator[Doubt]:
    """Yield the steps whose end is not known."""
    incomplete = ~evidence.windows.complete & ~evidence.masked
    if evidence.trace.complete and incomplete.any():
        numbers = format_ranges(evidence.windows.step[incomplete].tolist())
        yield Doubt(text=f"step {numbers} is incomplete and does not count")


def steps_without_device(evidence: Evidence) -> Iterator[Doubt]:
    """Yield the steps of a GPU rank in which nothing ran on the device.

    A loop that ends behind `prof.step()` leaves such a step at its end, which is no defect.
    """
    windows, lanes = evidence.windows, evidence.lanes
    device = lanes.device_events
    if not device.is_kernel.any() or not device.linked.any():
        return
    index = windows.index_of_device(device, evidence.trace.events.start_ns[device.row])
    empty = np.bincount(index + 1, minlength=len(windows) + 1)[1:] == 0
    told = empty & windows.complete & ~evidence.masked
    if empty.any():
        is_end = not told[:-1].any()
        text = f"nothing ran on the device in step {format_ranges(windows.step[told].tolist())}: it does not count"
        yield Doubt(
            text=text if told.any() else "",
            steps=empty,
            severity="info" if is_end else "warning",
        )
