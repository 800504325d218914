"""One recording in a worker, with the selected steps: the input of every part that is kept of a rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tracekit.analysis.events.phases import PhaseTimeline
from tracekit.analysis.timeline.lanes import Lanes
from tracekit.model.events import DecodedTrace
from tracekit.model.messages import Messages
from tracekit.model.summary import StepParts

__all__ = ["RecordedSteps"]

T = TypeVar("T")


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
