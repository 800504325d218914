"""A finding: one thing to know or do about a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tracekit.model.notes import Severity

__all__ = ["Certainty", "Finding", "Remedy"]

Certainty = Literal["sure", "likely"]
"""sure: shown in enough steps, beyond noise and the errors of clocks. likely: what explains the recording best."""

Remedy = Literal[
    "ranks",
    "link",
    "load",
    "data",
    "checkpoint",
    "evaluation",
    "logging",
    "communication",
    "network",
    "stages",
    "host",
    "reshard",
    "together",
]
"""What a replay changes to show what it saves.

ranks: the work of ranks. link: a link. load: the load of experts. data: loading data. checkpoint, evaluation,
logging: these take no time. communication: all of it is
hidden where data dependencies allow. network: communication takes no time. stages: those of a pipeline are alike.
host: the device never waits for a launch. reshard: FSDP keeps parameters from forward to backward. together: several of
these.
"""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What to know or do about the run.

    Attributes:
        severity: error, warning or info.
        text: what is the case.
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
    """

    severity: Severity
    text: str
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

    @property
    def concerned(self) -> tuple[int, ...]:
        """Return the ranks that the finding is about."""
        return self.ranks or (() if self.rank is None else (self.rank,))
