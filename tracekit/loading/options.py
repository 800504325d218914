"""What is read of each rank: which steps, with which rules, for which sections of a report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.names.pseudonyms import Pseudonyms
from tracekit.rank.communication_rules import DEFAULT_RULES, CommunicationRule, parse_rule


@dataclass(frozen=True, kw_only=True)
class StepSelection:
    """The steps with first <= step < stop.

    Attributes:
        whole: the whole recording counts as one window, whether it has steps or not.
    """

    first: int | None = None
    stop: int | None = None
    whole: bool = False

    def __contains__(self, step: int) -> bool:
        return (self.first is None or step >= self.first) and (self.stop is None or step < self.stop)

    @property
    def is_everything(self) -> bool:
        return self.whole or (self.first is None and self.stop is None)

    def mask(self, step: Int64) -> Bool:
        """Return which of the steps (int64 [n]) are selected: bool [n].

        What belongs to no step (-1) is selected only if every step is.
        """
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
        rules: which kernels are communication; the first that is for a kernel's name decides.
        sections: the sections that reports will have; None: any.
        without: steps that are selected and yet left out, ascending.
        settled: of each rank, first steps that are longer than its others are left out, too.
        pseudonyms: replace the names of an anonymised run.
    """

    steps: StepSelection = StepSelection()
    rules: tuple[CommunicationRule, ...] = DEFAULT_RULES
    sections: frozenset[str] | None = None
    without: tuple[int, ...] = ()
    settled: bool = False
    pseudonyms: Pseudonyms | None = field(default=None, compare=False)

    def with_rules(self, rules: Iterable[CommunicationRule | str]) -> SummaryOptions:
        """Return these options with more rules, which are tried first; texts are of the form regex=kind.

        Raises UsageError for a text that is no rule.
        """
        added = [parse_rule(rule) if isinstance(rule, str) else rule for rule in rules]
        return replace(self, rules=(*(rule for rule in added if rule not in self.rules), *self.rules))
