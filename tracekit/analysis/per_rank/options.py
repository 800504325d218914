"""What is read of each rank: which steps, by which rules, for which sections of a report."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.events.communication_rules import DEFAULT_RULES, CommunicationRule
from tracekit.model.events import ABSENT, Bool, Int64

__all__ = ["StepSelection", "SummaryOptions"]


@dataclass(frozen=True, kw_only=True)
class StepSelection:
    """Steps first <= k < stop; `whole` takes the recording as one window, steps or not."""

    first: int | None = None
    stop: int | None = None
    whole: bool = False

    def __contains__(self, step: int) -> bool:
        return (self.first is None or step >= self.first) and (self.stop is None or step < self.stop)

    @property
    def is_everything(self) -> bool:
        return self.whole or (self.first is None and self.stop is None)

    def mask(self, step: Int64) -> Bool:
        """Which of `step`, int64 [n], are chosen: bool [n]. What is in no step (-1) is when everything is."""
        if self.is_everything:
            return np.ones(len(step), dtype=np.bool_)
        chosen: Bool = step != ABSENT
        if self.first is not None:
            chosen &= step >= self.first
        if self.stop is not None:
            chosen &= step < self.stop
        return chosen


@dataclass(frozen=True, kw_only=True)
class SummaryOptions:
    """What a worker needs to know besides the files.

    Attributes:
        sections: those that reports will have; None: any.
    """

    steps: StepSelection = StepSelection()
    rules: tuple[CommunicationRule, ...] = DEFAULT_RULES
    sections: frozenset[str] | None = None
