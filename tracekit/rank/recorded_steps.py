"""What every part that is kept of a rank starts from: one recording in a worker, with the selected steps.

Of the rank's timeline itself these are kept: its waits, the ends of its steps, and the entries of its flight recorder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tracekit.model.columnar import Columnar
from tracekit.model.communication import FlightRecorderMatch, Messages, Unjoined
from tracekit.model.events import DecodedTrace, Int64
from tracekit.model.summary import Part, StepParts, table_part
from tracekit.rank.lanes import Lanes
from tracekit.rank.phases import PhaseTimeline
from tracekit.stats.grouped import summed

T = TypeVar("T")
"""None: there was nothing to match."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedSteps:
    """A recording of one rank.

    Attributes:
        steps: the selected ones, complete or not.
        messages: its sends and receives.
    """

    trace: DecodedTrace
    lanes: Lanes
    phases: PhaseTimeline
    steps: tuple[StepParts, ...]
    messages: Messages
    _results: dict[Callable[[RecordedSteps], Any], Any] = field(default_factory=dict)

    def once(self, function: Callable[[RecordedSteps], T]) -> T:
        """Return `function(self)`. It is called only the first time, since several parts may need its result."""
        if function not in self._results:
            self._results[function] = function(self)
        result: T = self._results[function]
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class Waits(Columnar):
    """n disjoint waits in order of time, on the rank's wall clock. Each ends when a collective, send or receive ends.

    Attributes:
        since_ns: int64 [n].
        until_ns: int64 [n].
    """

    since_ns: Int64
    until_ns: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class StepEndSegments(Columnar):
    """What the rank did before each step's end, in order of time.

    Attributes:
        released_ns: when it was last released from communication, int64 [n].
        until_ns: the step's end, int64 [n].
        compute_ns: how long it computed between the two, int64 [n].
        data_ns: how long it loaded data between the two, int64 [n].
    """

    released_ns: Int64
    until_ns: Int64
    compute_ns: Int64
    data_ns: Int64


def _merge_matches(windows: Sequence[FlightRecorderMatch | None]) -> FlightRecorderMatch | None:
    """Return the matches of a rank's recordings as one; None without any."""
    matches = [window for window in windows if window is not None]
    if not matches:
        return None
    every = (unjoined for match in matches for unjoined in match.unjoined)
    counts = summed(((each.kind, each.reason, each.expected), each.count) for each in every)
    return FlightRecorderMatch(
        recorded=sum(match.recorded for match in matches),
        unjoined=tuple(
            Unjoined(kind=kind, reason=reason, count=count, expected=expected)
            for (kind, reason, expected), count in sorted(counts.items())
        ),
    )


WAITS = table_part("waits", Waits)
STEP_ENDS = table_part("step_ends", StepEndSegments)


FLIGHT_RECORDER: Part[FlightRecorderMatch | None] = Part(
    name="flight_recorder", type=FlightRecorderMatch | None, empty=lambda: None, merge=_merge_matches
)
