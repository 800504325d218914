"""Of each step of one rank the time of its parts."""

from __future__ import annotations

from tracekit.analysis.timeline.lanes import Lanes
from tracekit.model.events import ABSENT
from tracekit.model.summary import StepParts

__all__ = ["step_parts"]


def step_parts(lanes: Lanes) -> list[StepParts]:
    """The parts of every window, in order of time.

    Raises AssertionError if the parts and the idle time, which is measured as gaps, do not add up to a window.
    """
    windows = lanes.windows
    lanes_to_sum = (
        lanes.compute,
        lanes.communication,
        lanes.communication & lanes.compute,
        lanes.exposed_communication,
        lanes.exposed_copy,
        lanes.idle,
    )
    covered_ns = zip(
        *(lane.covered_ns(windows.start_ns, windows.end_ns).tolist() for lane in lanes_to_sum), strict=True
    )
    result = []
    for i, (compute_ns, comm_ns, overlapped_ns, exposed_comm_ns, exposed_copy_ns, idle_ns) in enumerate(covered_ns):
        window = int(windows.start_ns[i]), int(windows.end_ns[i])
        parts = StepParts(
            step=int(windows.step[i]),
            start_ns=window[0],
            complete=bool(windows.complete[i]),
            data_ns=int(windows.data_ns[i]) if windows.data_ns[i] != ABSENT else None,
            step_ns=window[1] - window[0],
            compute_ns=compute_ns,
            comm_ns=comm_ns,
            overlapped_comm_ns=overlapped_ns,
            exposed_comm_ns=exposed_comm_ns,
            exposed_copy_ns=exposed_copy_ns,
            idle_ns=idle_ns,
        )
        total = parts.compute_ns + parts.exposed_comm_ns + parts.exposed_copy_ns + parts.idle_ns
        assert total == parts.step_ns, f"step {parts.step}: the parts sum to {total} ns of {parts.step_ns} ns"
        result.append(parts)
    return result
