"""What a rank mostly does in each of many equal intervals of its steps: enough to draw a step, and small.

A step is a text with one letter an interval. So no file is read again to draw a typical step, which is known only when
all ranks are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.events import Int64
from tracekit.model.intervals import Intervals
from tracekit.model.summary import table_part
from tracekit.rank.idle_causes import idle_by_cause
from tracekit.rank.recorded_steps import RecordedSteps

INTERVALS = 480
"""A pixel or two of a picture each."""

ACTIVITIES = ("compute", "communication", "copy", "host_late", "synchronisation", "data_loading", "pause", "idle")
"""communication and copy: exposed. host_late: the device idles, as its host launches late. pause: checkpoints, logging,
garbage collection, allocations, captures of graphs. idle: anything else.
"""
LETTERS = "ctyhsdp."
"""The letter of each of `ACTIVITIES`."""

_MOST_STEPS = 64
_OF_CAUSES = {
    "host_late": ("host_bound", "host_compute", "between_steps"),
    "synchronisation": ("synchronisation",),
    "data_loading": ("data",),
    "pause": ("checkpoint", "logging", "graph_capture", "allocator", "garbage_collection"),
    "idle": ("kernel_gap", "other"),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class StepTimelines(Columnar):
    """n steps of one rank, in order of time.

    Attributes:
        step: number, int64 [n].
        start_ns: on the rank's wall clock, int64 [n].
        end_ns: int64 [n].
        letters: of what the rank mostly does in each of `INTERVALS` equal intervals, texts [n].
    """

    step: Int64
    start_ns: Int64
    end_ns: Int64
    letters: np.ndarray


STEP_TIMELINES = table_part("step_timelines", StepTimelines)


def step_timelines(recorded: RecordedSteps) -> StepTimelines:
    """Return the first steps that are selected."""
    lanes, causes = recorded.lanes, recorded.once(idle_by_cause)
    windows = lanes.windows
    wanted = np.flatnonzero(np.isin(windows.step, [step.step for step in recorded.steps]))[:_MOST_STEPS]
    start_ns, end_ns = windows.start_ns[wanted], windows.end_ns[wanted]
    edges_ns = start_ns[:, None] + (end_ns - start_ns)[:, None] * np.arange(INTERVALS + 1) // INTERVALS
    covered_ns = np.zeros((len(ACTIVITIES), len(wanted), INTERVALS), dtype=np.int64)

    def add(activity: str, time: Intervals) -> None:
        if len(time):
            covered_ns[ACTIVITIES.index(activity)] += np.diff(time.covered_before(edges_ns), axis=1)

    add("compute", lanes.compute)
    add("communication", lanes.exposed_communication)
    add("copy", lanes.exposed_copy)
    for activity, names in _OF_CAUSES.items():
        # A host that computes, or has left the step, is late for its device; a rank without one is in Python.
        drawn = "idle" if activity == "host_late" and lanes.device == "cpu" else activity
        for name in names:
            add(drawn, causes[name])
    most = covered_ns.argmax(axis=0)
    most[covered_ns.max(axis=0) == 0] = ACTIVITIES.index("idle")
    letters = np.frombuffer(LETTERS.encode(), dtype=np.uint8)[most]
    texts = [row.tobytes().decode() for row in letters]
    return StepTimelines(
        step=windows.step[wanted], start_ns=start_ns, end_ns=end_ns, letters=np.array(texts, dtype=object)
    )
