"""When one rank pauses its training, and for what."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.events.pauses.pause_times import PAUSES, checkpoint_calls
from tracekit.analysis.pauses.tables import RankPauses
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.model.events import ABSENT
from tracekit.model.intervals import Intervals

_JOINED_NS = 20_000  # from one logging call to the next: they count as one
_SHORTEST_NS = 50_000  # of logging: less is not kept

__all__ = ["rank_pauses"]


def rank_pauses(recorded: RecordedSteps) -> RankPauses:
    """Return the pauses of the step's thread in the recorded steps."""
    windows, times = recorded.lanes.windows, recorded.phases.pauses
    calls = checkpoint_calls(recorded.trace.events, np.array([windows.thread], dtype=np.int64))
    of_kind = (times.checkpoint, times.evaluation, _long(times.logging))
    start_ns, end_ns = (np.concatenate([getattr(time, edge) for time in of_kind]) for edge in ("start_ns", "end_ns"))
    pause = np.repeat(np.arange(len(PAUSES), dtype=np.int32), [len(time) for time in of_kind])
    call = np.searchsorted(calls.start_ns, start_ns, side="right") - 1
    call = np.where(pause == PAUSES.index("checkpoint"), call, ABSENT)
    action, function = (np.append(column, ABSENT)[call].astype(np.int32) for column in (calls.action, calls.function))
    window = windows.index_of(start_ns)
    return RankPauses(
        pause=pause,
        action=action,
        function=function,
        step=np.where(window >= 0, windows.step[window], ABSENT),
        start_ns=start_ns,
        end_ns=end_ns,
        waiting_ns=recorded.lanes.exposed_communication.covered_ns(start_ns, end_ns),
    )


def _long(time: Intervals) -> Intervals:
    """Return some time without its short gaps, and then without its short parts."""
    between = Intervals(time.end_ns[:-1], time.start_ns[1:])
    gaps = between.duration_ns <= _JOINED_NS
    joined = time | Intervals.union_of(between.start_ns[gaps], between.end_ns[gaps])
    is_long = joined.duration_ns >= _SHORTEST_NS
    return Intervals(joined.start_ns[is_long], joined.end_ns[is_long])
