"""Whether launches block: each call that launches a kernel returns only when the kernel has ended.

Variables for debugging do that (`BLOCKING_VARIABLES`). Then nothing overlaps, and the device idles from each kernel to
the next. A launch that does not block returns after some microseconds, which a short kernel may take as well. So only
longer kernels show it, and only their launches are counted.

    call     |------------|   |-------|      blocks          call     |--| |--|              does not
    kernel      |========|      |====|                       kernel      |========||====|
"""

from __future__ import annotations

import numpy as np

from tracekit.explain.configuration import CONFIGURATION
from tracekit.explain.step_time.tables import IDLE_SUMS, LAUNCH_CALLS, LaunchCalls
from tracekit.findings.finding import Finding
from tracekit.findings.hosts import launches_that_block
from tracekit.findings.thresholds import BLOCKING_LAUNCHES
from tracekit.model.metadata import BLOCKING_VARIABLES
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary
from tracekit.rank.lanes import complete_steps
from tracekit.rank.recorded_steps import RecordedSteps

_LONG_NS = 50_000
_CLOCK_ERROR_NS = 5_000  # between the host's clock and the device's
_FEWEST = 10  # a rank


def launch_calls(recorded: RecordedSteps) -> tuple[LaunchCalls, ...]:
    """Return how many launches of the complete steps ended behind their kernels. Those of graphs do not count."""
    events, lanes = recorded.trace.events, recorded.lanes
    device = lanes.device_events.rows(lanes.device_events.is_kernel & lanes.device_events.linked)
    counts = complete_steps(lanes, recorded.steps).time.covers(events.start_ns[device.row])
    counts &= events.duration_ns[device.row] >= _LONG_NS
    _, which, kernels = np.unique(device.launch_row, return_inverse=True, return_counts=True)
    device = device.rows(counts & (kernels[which] == 1))
    behind = int((events.end_ns[device.launch_row] >= events.end_ns[device.row] - _CLOCK_ERROR_NS).sum())
    hip = any(events.strings[name].startswith("hip") for name in np.unique(events.name[device.launch_row]).tolist())
    return (LaunchCalls(api="hip" if hip else "cuda", count=len(device), behind=behind),)


def _variables(summary: RankSummary) -> list[str]:
    """Return the variables that make the rank's launches block, as recorded or as usual; none where they do not."""
    if summary.device != "gpu":
        return []
    names = {name for settings in summary[CONFIGURATION] for name in settings.values if name in BLOCKING_VARIABLES}
    for calls in summary[LAUNCH_CALLS] if not names else ():
        if calls.count >= _FEWEST and calls.behind >= BLOCKING_LAUNCHES * calls.count:
            names.update(BLOCKING_VARIABLES[1:] if calls.api == "hip" else BLOCKING_VARIABLES[:1])
    return [name for name in BLOCKING_VARIABLES if name in names]


def blocking_findings(run: Run) -> list[Finding]:
    """Find launches that block. The exposed communication of these ranks, and the gaps behind kernels, are of that."""
    blocking = [summary for summary in run.ranks if _variables(summary)]
    steps = [step for summary in blocking for step in summary.steps if step.complete]
    if not steps:
        return []
    step_ns, exposed_ns = (sum(getattr(step, name) for step in steps) for name in ("step_ns", "exposed_comm_ns"))
    idle_ns = sum(i.total_ns for summary in blocking for i in summary[IDLE_SUMS] if i.cause == "host_bound")
    calls = [row for summary in blocking for row in summary[LAUNCH_CALLS]]
    found = launches_that_block(
        cause="blocking_launches",
        time_ns=(exposed_ns + idle_ns) // len(steps),
        ranks=tuple(summary.rank for summary in blocking) if len(blocking) < len(run.ranks) else (),
        evidence={
            "launches_per_step": round(sum(row.count for row in calls) / len(steps)),
            "behind_per_step": round(sum(row.behind for row in calls) / len(steps)),
            "exposed_share": exposed_ns / step_ns,
            "idle_share": idle_ns / step_ns,
            "variables": list(dict.fromkeys(name for summary in blocking for name in _variables(summary))),
        },
        remedy="host",
    )
    return [found]
