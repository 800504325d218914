"""One recording in a worker, with the steps that were selected: what everything that is kept of it is made from."""

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
        """Return `function(self)`, which is called the first time only: several parts may be made from its result."""
        if function not in self._results:
            self._results[function] = function(self)
        result: T = self._results[function]
        return result
