"""What is read of each rank: which steps, with which rules, for which sections of a report."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from tracekit.errors import UsageError
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.names.pseudonyms import Pseudonyms
from tracekit.rank.communication_rules import DEFAULT_RULES, CommunicationRule, parse_rule
from tracekit.rank.steps import StepSearch


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
        step_anchor: names of events that begin a step, a regular expression.
        first_step: the number of the first step, where no marks number the steps of a recording.
        pseudonyms: replace the names of an anonymised run.
    """

    steps: StepSelection = StepSelection()
    rules: tuple[CommunicationRule, ...] = DEFAULT_RULES
    sections: frozenset[str] | None = None
    without: tuple[int, ...] = ()
    settled: bool = False
    step_anchor: str | None = None
    first_step: int = 0
    pseudonyms: Pseudonyms | None = field(default=None, compare=False)

    @property
    def search(self) -> StepSearch:
        """Return how steps are found."""
        return StepSearch(whole=self.steps.whole, anchor=self.step_anchor, first=self.first_step)

    def with_step_anchor(self, pattern: str | None) -> SummaryOptions:
        """Return these options with what begins a step, if it is given. Raises UsageError for no regular expression."""
        try:
            re.compile(pattern or "")
        except re.error as error:
            hint = "give a regular expression, such as '^train_step$'"
            raise UsageError(f"step anchor {pattern!r}: {error}", hint=hint) from None
        return self if pattern is None else replace(self, step_anchor=pattern)

    def with_rules(self, rules: Iterable[CommunicationRule | str]) -> SummaryOptions:
        """Return these options with more rules, which are tried first; texts are of the form regex=kind.

        Raises UsageError for a text that is no rule.
        """
        added = [parse_rule(rule) if isinstance(rule, str) else rule for rule in rules]
        return replace(self, rules=(*(rule for rule in added if rule not in self.rules), *self.rules))
