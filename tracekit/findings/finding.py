"""A finding: one thing to know or do about a run, and the conditions that it had to meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tracekit.model.notes import Severity

Certainty = Literal["sure", "likely"]
"""sure: shown in enough steps, beyond noise and the errors of clocks. likely: what explains the recording best."""

SAVES_NOTHING = "no replay of this change saves more than its error"
"""Why a finding has no saving, in its evidence as `no_replay`, if its change was replayed."""

Remedy = Literal[
    "ranks",
    "link",
    "load",
    "data",
    "checkpoint",
    "evaluation",
    "logging",
    "allocator",
    "garbage_collection",
    "communication",
    "network",
    "stages",
    "host",
    "reshard",
    "accumulate",
    "together",
]
"""What a replay changes to show what it saves.

ranks: the work of ranks. link: a link. load: the load of experts. data: loading data. checkpoint, evaluation,
logging, allocator, garbage_collection: these take no time. communication: all of it is
hidden where data dependencies allow. network: communication takes no time. stages: those of a pipeline are alike.
host: the device never waits for a launch. reshard: FSDP keeps parameters from forward to backward. accumulate:
gradients are reduced in the last micro-batch only. together: several of these.
"""


class Threshold(float):
    """A number that something must reach before it is a finding. It is used as the number that it is.

    Attributes:
        what: what must reach it, such as "share of the step".
        unit: "share", "times", "steps", "errors" or "ns".
    """

    what: str
    unit: str

    def __new__(cls, value: float, what: str, unit: str = "share") -> Threshold:
        threshold = super().__new__(cls, value)
        threshold.what, threshold.unit = what, unit
        return threshold

    def reached_by(self, value: float) -> Condition:
        """Return the condition that `value` is at least the threshold."""
        return Condition(what=self.what, value=float(value), bound=float(self), unit=self.unit)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Something that must be large enough for a finding.

    Attributes:
        what: what is compared.
        value: of this run.
        bound: what the value must reach.
        unit: of both: "share", "times", "steps", "errors" or "ns".
    """

    what: str
    value: float
    bound: float
    unit: str = "share"

    @property
    def holds(self) -> bool:
        return self.value >= self.bound

    @property
    def closeness(self) -> float:
        """Return the part of the bound that the value reaches, at most 1."""
        return min(self.value / self.bound, 1.0) if self.bound > 0 else float(self.holds)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What to know or do about the run, or what was close to that: it holds if all of its conditions do.

    Attributes:
        id: that of its entry in the catalogue, such as "exposed-transfers".
        severity: error, warning or info.
        tag: the field's term for it, in capitals, such as "STRAGGLER".
        text: what is the case; it begins with that term.
        rank: the rank that it is about, if it is one.
        step: the number of the step that it is about, if it is one.
        saving_ns: what the action would save per step, by a replay; None without a replay.
        saving_error_ns: the uncertainty of the saving.
        certainty: how sure it is that the text is true.
        cause: what the time is lost to: of a named rank or link that of its delay, else a cause of the step
            (docs/definitions.md, "Diagnosis").
        time_ns: how much of the mean step it is about.
        action: what to do, as an imperative sentence without a full stop; None if there is nothing to do.
        evidence: the numbers behind the text.
        remedy: what would mend it; None if no replay can show that.
        ranks: whom the remedy concerns, `rank` or several.
        conditions: what it took, in the order in which it was asked.
    """

    id: str
    severity: Severity
    text: str
    tag: str = ""
    rank: int | None = None
    step: int | None = None
    saving_ns: int | None = None
    saving_error_ns: int | None = None
    certainty: Certainty = "sure"
    cause: str | None = None
    time_ns: int | None = None
    action: str | None = None
    evidence: Mapping[str, object] = field(default_factory=dict)
    remedy: Remedy | None = None
    ranks: tuple[int, ...] = ()
    conditions: tuple[Condition, ...] = ()

    @property
    def holds(self) -> bool:
        """Return whether it is a finding, and not only close to one."""
        return all(condition.holds for condition in self.conditions)

    @property
    def closeness(self) -> float:
        """Return the part that it reaches of the condition that it is farthest from, at most 1."""
        return min((condition.closeness for condition in self.conditions), default=1.0)

    @property
    def concerned(self) -> tuple[int, ...]:
        """Return the ranks that the finding is about."""
        return self.ranks or (() if self.rank is None else (self.rank,))


def held(candidates: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return those whose conditions hold."""
    return tuple(candidate for candidate in candidates if candidate.holds)
