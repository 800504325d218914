"""A run over its ranks, and what is said about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tracekit.model.collectives import MatchedGroup
from tracekit.model.communication import GroupKey
from tracekit.model.messages import MatchedMessages, nothing_matched
from tracekit.model.notes import Note, Severity
from tracekit.model.summary import RankSummary

__all__ = ["ClockModel", "ClockStep", "Finding", "OtherRun", "Run"]


@dataclass(frozen=True, kw_only=True)
class ClockStep:
    """From `from_ns` on, on the rank's own clock, `offset_ns` at `at_ns` is what holds."""

    from_ns: int
    offset_ns: int
    at_ns: int


@dataclass(frozen=True, kw_only=True)
class ClockModel:
    """A rank's clock against the reference's: `t_run = t_rank - offset_ns - drift * (t_rank - at_ns)`, with other
    offsets after each of its `steps`. `error_ns` is the half-width of the uncertainty, None when it is not known.
    """

    rank: int
    method: Literal["probe", "collectives", "none"]
    offset_ns: int = 0
    at_ns: int = 0
    drift_ppm: float | None = None
    error_ns: int | None = None
    steps: tuple[ClockStep, ...] = ()  # in order of time


@dataclass(frozen=True, kw_only=True)
class OtherRun:
    run_id: str | None
    attempt: int
    ranks: int
    start_ns: int | None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What to know or do about the run. `saving_ns`: what doing it would save a step, at most."""

    severity: Severity
    text: str
    rank: int | None = None
    step: int | None = None
    saving_ns: int | None = None
    evidence: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Run:
    """All ranks that are there. `paths` are as typed; `groups` are listed once, a row refers to one by its place;
    `sections`: those of a report that its summaries were made for, None: any.
    """

    paths: tuple[str, ...]
    run_id: str | None
    attempt: int
    world_size: int | None
    ranks: tuple[RankSummary, ...]
    missing_ranks: tuple[int, ...]
    selected_ranks: tuple[int, ...] | None
    groups: tuple[GroupKey, ...]
    clocks: tuple[ClockModel, ...]
    other_runs: tuple[OtherRun, ...]
    notes: tuple[Note, ...]
    messages: MatchedMessages = field(default_factory=nothing_matched)
    collectives: tuple[MatchedGroup, ...] = ()
    sections: frozenset[str] | None = None

    @property
    def reference_rank(self) -> int | None:
        """The rank whose clock is the run's: the lowest that was measured, else the lowest."""
        measured = [clock.rank for clock in self.clocks if clock.method != "none"]
        return min(measured, default=min((clock.rank for clock in self.clocks), default=None))

    @property
    def path(self) -> str:
        return " ".join(self.paths)

    @property
    def arguments(self) -> list[str]:
        """What a command takes to read the same run, attempt and ranks again."""
        chosen = [*self.paths]
        if self.run_id is not None and self.other_runs:
            chosen += ["--run", self.run_id]
        if any(other.run_id == self.run_id for other in self.other_runs):
            chosen += ["--attempt", str(self.attempt)]
        if self.selected_ranks is not None:
            chosen += ["--ranks", ",".join(map(str, self.selected_ranks))]
        return chosen

    @property
    def device(self) -> Literal["gpu", "cpu", "mixed"]:
        # A server's recording shows nothing of what its device does.
        kinds = {s.device for s in self.ranks if not s.is_server} or {s.device for s in self.ranks}
        return kinds.pop() if len(kinds) == 1 else "mixed"

    @property
    def strategies(self) -> tuple[str, ...]:
        """Slugs of the JSON contract that any rank shows, sorted."""
        return tuple(sorted({slug for summary in self.ranks for slug in summary.strategies}))

    def mean_step_ns(self) -> float:
        """Over the steps that all present ranks completed, and over these ranks; 0 without any."""
        common = self.common_steps()
        steps_ns = [step.step_ns for s in self.ranks for step in s.steps if step.step in common]
        return sum(steps_ns) / len(steps_ns) if steps_ns else 0.0

    def common_steps(self) -> frozenset[int]:
        """Steps that all present ranks completed: what ranks may be compared on. A server has none."""
        trained = [summary for summary in self.ranks if not summary.is_server]
        complete = [frozenset(s.step for s in summary.steps if s.complete) for summary in trained]
        return frozenset.intersection(*complete) if complete else frozenset()
