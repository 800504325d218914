"""Whether launches block: each call that launches a kernel returns only when the kernel has ended.

Variables for debugging do that (`BLOCKING_VARIABLES`). Then nothing overlaps, and the device idles from each kernel to
the next. A launch that does not block returns after some microseconds, which a short kernel may take as well. So only
kernels that last longer show it.

    call     |------------|   |-------|      blocks          call     |--| |--|              does not
    kernel      |========|      |====|                       kernel      |========||====|
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracekit.explain.configuration import CONFIGURATION
from tracekit.explain.step_time.tables import LAUNCH_CALLS, LaunchCalls
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
_FEWEST_LONG = 10  # a rank


def launch_calls(recorded: RecordedSteps) -> tuple[LaunchCalls, ...]:
    """Return how many launches of the complete steps ended behind their kernels. Those of graphs do not count."""
    events, lanes = recorded.trace.events, recorded.lanes
    device = lanes.device_events.rows(lanes.device_events.is_kernel & lanes.device_events.linked)
    in_steps = complete_steps(lanes, recorded.steps).time.covers(events.start_ns[device.row])
    _, which, kernels = np.unique(device.launch_row, return_inverse=True, return_counts=True)
    device = device.rows(in_steps & (kernels[which] == 1))
    behind = events.end_ns[device.launch_row] >= events.end_ns[device.row] - _CLOCK_ERROR_NS
    is_long = events.duration_ns[device.row] >= _LONG_NS
    names = np.unique(events.name[device.launch_row]).tolist()
    counts = (len(device.row), behind.sum(), is_long.sum(), (behind & is_long).sum())
    count, ended_behind, long, long_behind = map(int, counts)
    hip = any(events.strings[name].startswith("hip") for name in names)
    return (
        LaunchCalls(api="hip" if hip else "cuda", count=count, behind=ended_behind, long=long, long_behind=long_behind),
    )


def ranks_that_block(run: Run) -> tuple[int, ...]:
    """Return the ranks whose launches block, as their events or the recorded variables show."""
    return tuple(summary.rank for summary in run.ranks if summary.device == "gpu" and _blocks(summary))


def _blocks(summary: RankSummary) -> bool:
    calls = summary[LAUNCH_CALLS]
    long = sum(row.long for row in calls)
    shown = long >= _FEWEST_LONG and sum(row.long_behind for row in calls) >= BLOCKING_LAUNCHES * long
    return shown or bool(_variables(summary))


def _variables(summary: RankSummary) -> Sequence[str]:
    return [name for settings in summary[CONFIGURATION] for name in settings.values if name in BLOCKING_VARIABLES]


def blocking_findings(run: Run) -> list[Finding]:
    """Find launches that block. The exposed communication and idle time of these ranks are for that reason."""
    named = set(ranks_that_block(run))
    blocking = [summary for summary in run.ranks if summary.rank in named]
    steps = [step for summary in blocking for step in summary.steps if step.complete]
    if not steps:
        return []
    calls = [row for summary in blocking for row in summary[LAUNCH_CALLS]]
    step_ns, long = sum(step.step_ns for step in steps), sum(row.long for row in calls)
    exposed_ns, idle_ns = sum(step.exposed_comm_ns for step in steps), sum(step.idle_ns for step in steps)
    variables = sorted({name for summary in blocking for name in _variables(summary)})
    usual = BLOCKING_VARIABLES[1:] if any(row.api == "hip" for row in calls) else BLOCKING_VARIABLES[:1]
    share = sum(row.long_behind for row in calls) / long if long else 1.0
    return [
        launches_that_block(
            cause="blocking_launches",
            time_ns=(exposed_ns + idle_ns) // len(steps),
            ranks=tuple(sorted(named)) if len(named) < len(run.ranks) else (),
            evidence={
                "launches_per_step": round(sum(row.count for row in calls) / len(steps)),
                "behind_per_step": round(sum(row.behind for row in calls) / len(steps)),
                "exposed_share": exposed_ns / step_ns,
                "idle_share": idle_ns / step_ns,
                "variables": variables or list(usual),
            },
            remedy="host",
            conditions=[BLOCKING_LAUNCHES.reached_by(1.0 if variables else share)],
        )
    ]
