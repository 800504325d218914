"""What the host and the device of a GPU rank did in a stretch of steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracekit.analysis.whatif.graph.run_communication import Communication
from tracekit.analysis.whatif.tables import CUTS, LaunchSegments
from tracekit.model.events import ABSENT, Bool, Int64

_WAIT, _STEP, _END = (CUTS.index(what) for what in ("wait", "step", "end"))

__all__ = ["DeviceTimeline", "segments_of_steps"]


def segments_of_steps(segments: LaunchSegments, steps: Sequence[int]) -> LaunchSegments | None:
    """Return the segments from the begin of the first step to the row that ends the last; None if they are not known.

    steps: numbers of steps that follow one another.
    """
    begins = np.flatnonzero((segments.what == _STEP) & (segments.step == steps[0]))
    last = np.flatnonzero((segments.what == _STEP) & (segments.step == steps[-1]))
    if not len(begins) or not len(last):
        return None
    ends = np.flatnonzero(np.isin(segments.what, (_STEP, _END)))
    after = ends[ends > last[0]]
    if not len(after):
        return None
    found = segments.rows(np.arange(begins[0], after[0] + 1))
    return found if np.count_nonzero(found.what[:-1] == _STEP) == len(steps) else None


class DeviceTimeline:
    """The n rows of the segments of a stretch, on the rank's wall clock. The last row only ends the one before.

    Attributes:
        host: rows that cut the host's time, int64 [h].
        host_row: of each row the row that begins its host segment, int64 [n].
        end_ns: when the kernels that were launched until the end of each row had ended, int64 [n].
        free_ns: when the kernels that were launched before each row had ended, int64 [n].
        step: int64 [n], from 0.
        rows: of the communication that was launched in these steps, in order of launch, int64 [c].
        row_of: the row that launches each of them, int64 [c].
        slot: how much communication of the step was launched up to each row, int64 [n].
    """

    def __init__(self, begin_ns: int, segments: LaunchSegments, communication: Communication) -> None:
        """begin_ns: when the device began the first step."""
        count = len(segments)
        self.what, self.segments = segments.what, segments
        self.begin_ns, self.until_ns = segments.begin_ns, segments.until_ns
        self.host = np.flatnonzero(self.what != _WAIT)
        self.host_row = np.maximum.accumulate(np.where(self.what != _WAIT, np.arange(count), 0))
        self.end_ns = np.maximum(segments.device_end_ns, begin_ns)
        self.free_ns = np.concatenate(([begin_ns], self.end_ns[:-1]))
        self.step = np.cumsum(self.what == _STEP) - 1
        self.step[-1] = self.step[-2]
        launch_ns, end_ns = communication.own_launch_ns, communication.own_end_ns
        rows = np.flatnonzero((launch_ns >= self.begin_ns[0]) & (launch_ns < self.begin_ns[-1]))
        row_of = self.host[np.searchsorted(self.begin_ns[self.host], launch_ns[rows], side="right") - 1]
        launches = np.flatnonzero(segments.communication_end_ns != ABSENT)
        launches = launches[np.argsort(segments.communication_end_ns[launches], kind="stable")]
        ends_ns = segments.communication_end_ns[launches]
        place = np.searchsorted(ends_ns, end_ns[rows])
        known = np.append(ends_ns, ABSENT)[place] == end_ns[rows]
        row_of = np.where(known, np.append(launches, ABSENT)[place], row_of)
        order = np.lexsort((communication.ready_ns[rows], row_of))
        self.rows, self.row_of = rows[order], row_of[order]
        launched = np.cumsum(np.bincount(self.row_of, minlength=count))
        begins = np.flatnonzero(self.what[:-1] == _STEP)
        self.slot = launched - np.concatenate(([0], launched))[begins][self.step]

    def before(self, present: Bool) -> Int64:
        """Return the latest row before each row at which a mask [n] holds, or -1: int64 [n]."""
        latest = np.maximum.accumulate(np.where(present, np.arange(len(present)), ABSENT))
        return np.concatenate(([ABSENT], latest[:-1]))
