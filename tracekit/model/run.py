"""What a run is: the summaries of its ranks, their clocks, matches and notes.

The clock of a rank (`ClockModel`) says how it maps to the run's, and how far off that may be.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from tracekit.model.communication import GroupKey, MatchedGroup, MatchedMessages
from tracekit.model.events import ABSENT, Int64
from tracekit.model.metadata import Progress
from tracekit.model.names.pseudonyms import Pseudonyms
from tracekit.model.notes import Note
from tracekit.model.summary import RankSummary
from tracekit.model.texts import safe_text, shortened

_SHOWN_RANGES = 8

Method = Literal["probe", "host", "wall", "collectives", "messages", "none"]


@dataclass(frozen=True, kw_only=True)
class OtherRun:
    """A run that is at the same place and was not chosen."""

    run_id: str | None
    attempt: int
    ranks: int
    start_ns: int | None


@dataclass(frozen=True, kw_only=True)
class LeftOutStep:
    """The first step of a window, which is no part of the run as it is longer than the others.

    Attributes:
        step_ns: on the rank for which it was longest.
    """

    step: int
    step_ns: int


@dataclass(frozen=True, kw_only=True, repr=False)
class Run:
    """All ranks of a run that are there.

    Attributes:
        paths: as the user typed them.
        selected_ranks: None: all of them.
        groups: of all ranks; tables refer to a group by its index here.
        sections: the sections of a report for which the summaries were made; None: any.
        communication_rules: those that the user gave, as regex=kind.
        ranks_from: the regular expression by which the user numbered files that do not name their rank.
        step_anchor: what the user said begins a step, a regular expression.
        left_out: first steps that are longer than the others; `ranks` are without them.
        progress: of all attempts and ranks that left a progress file.
        pseudonyms: of an anonymised run, whose files must be read with them again; None: names are as recorded.
    """

    paths: tuple[str, ...]
    run_id: str | None = None
    attempt: int = 0
    world_size: int | None
    ranks: tuple[RankSummary, ...]
    missing_ranks: tuple[int, ...] = ()
    selected_ranks: tuple[int, ...] | None = None
    groups: tuple[GroupKey, ...]
    clocks: tuple[ClockModel, ...]
    other_runs: tuple[OtherRun, ...] = ()
    notes: tuple[Note, ...] = ()
    messages: MatchedMessages = field(default_factory=MatchedMessages.empty)
    collectives: tuple[MatchedGroup, ...] = ()
    sections: frozenset[str] | None = None
    communication_rules: tuple[str, ...] = ()
    ranks_from: str | None = None
    step_anchor: str | None = None
    left_out: tuple[LeftOutStep, ...] = ()
    progress: tuple[Progress, ...] = ()
    pseudonyms: Pseudonyms | None = None

    def __repr__(self) -> str:
        name = f"{short_repr(self.path)}, run {short_repr(self.run_id)}" if self.run_id else short_repr(self.path)
        ranks = f"{len(self.ranks)} of {self.world_size or '?'} ranks"
        facts = (ranks, self.device, " + ".join(self.strategies), f"{len(self.common_steps())} steps")
        return safe_text(f"<tracekit.Run {name}: {', '.join(filter(None, facts))}>")

    @property
    def reference_rank(self) -> int | None:
        """Return the rank whose clock is the run's: the lowest whose clock is known, else the lowest."""
        measured = [clock.rank for clock in self.clocks if clock.method != "none"]
        return min(measured, default=min((clock.rank for clock in self.clocks), default=None))

    @property
    def path(self) -> str:
        return " ".join(self.paths)

    @property
    def arguments(self) -> list[str]:
        """Return the command-line arguments that select the same run, attempt and ranks again, with the same rules."""
        chosen = [*self.paths]
        if self.run_id is not None and self.other_runs:
            chosen += ["--run", self.run_id]
        if any(other.run_id == self.run_id for other in self.other_runs):
            chosen += ["--attempt", str(self.attempt)]
        if self.selected_ranks is not None:
            chosen += ["--ranks", ",".join(map(str, self.selected_ranks))]
        if self.ranks_from is not None:
            chosen += ["--ranks-from", self.ranks_from]
        for rule in self.communication_rules:
            chosen += ["--communication-rule", rule]
        if self.step_anchor is not None:
            chosen += ["--step-anchor", self.step_anchor]
        return chosen

    @property
    def device(self) -> Literal["gpu", "cpu", "mixed"]:
        # The recording of a server does not show its device.
        kinds = {s.device for s in self.ranks if not s.serves_only} or {s.device for s in self.ranks}
        return kinds.pop() if len(kinds) == 1 else "mixed"

    @property
    def strategies(self) -> tuple[str, ...]:
        """Return the slugs of the JSON contract that any rank shows, sorted."""
        return tuple(sorted({slug for summary in self.ranks for slug in summary.strategies}))

    @property
    def steps_from(self) -> tuple[str, ...]:
        """Return how the steps of ranks were found (`RankSummary.steps_from`), each way once, sorted."""
        return tuple(sorted({summary.steps_from for summary in self.ranks if summary.is_measured}))

    @property
    def has_collectives(self) -> bool:
        """Return whether ranks meet in collectives."""
        return any(len(matched.ranks) > 1 and matched.row.size for matched in self.collectives)

    @property
    def message_servers(self) -> list[int]:
        """Return the ranks that serve others by messages."""
        return [summary.rank for summary in self.ranks if summary.serves_only and len(summary.messages)]

    @cached_property
    def ranks_are_independent(self) -> bool:
        """Whether several ranks train and none is seen to communicate with another, or with whom is not known.

        Then no step of one is a part of another's, and the job as a whole has no steps. Messages to ranks that serve
        all do not count. A kernel on a GPU that no rule is for may communicate. So ranks on GPUs are independent only
        if they make remote calls, or send messages to a server, instead.
        """
        trained, servers = [summary for summary in self.ranks if summary.is_measured], self.message_servers
        if not servers and (len(trained) < 2 or (self.device != "cpu" and "rpc" not in self.strategies)):
            return False
        return not any(
            not np.isin(s.messages.peer, servers).all() or _shares_collectives(s) or _sends_to_unknown(s)
            for s in trained
        )

    def mean_rank_step_ns(self) -> float:
        """Return the mean length of the steps that all present ranks completed, over these ranks; 0 without any."""
        common = self.common_steps()
        steps_ns = [step.step_ns for s in self.ranks for step in s.steps if step.step in common]
        return sum(steps_ns) / len(steps_ns) if steps_ns else 0.0

    def common_steps(self) -> frozenset[int]:
        """Return the steps that all present ranks completed, on which ranks can be compared, without those left out.

        Servers have no steps, and of ranks whose device records are lost none is known.
        """
        return self._common_steps

    @cached_property
    def index_of_rank(self) -> dict[int, int]:
        """Return the index in `ranks`, and in `clocks`, of each rank by its number."""
        return {summary.rank: index for index, summary in enumerate(self.ranks)}

    @cached_property
    def index_of_group(self) -> dict[GroupKey | None, int | None]:
        """Return the index of each group in `groups`; None of None, a group that is not known."""
        return {None: None, **{group: index for index, group in enumerate(self.groups)}}

    @cached_property
    def step_lengths_ns(self) -> Mapping[int, int]:
        """The length of each step that all ranks completed, by number, ascending.

        A step of the job is from the latest begin to the latest end over ranks, on the run's clock. A rank begins a
        step where it ended the one before, so step k is (T(k-1), T(k)], where T(k) is the latest end. Where clocks
        cannot be compared, and where ranks do not communicate, it is the median of the ranks' lengths.
        """
        common = self.common_steps()
        lengths_ns: dict[int, list[int]] = {step: [] for step in sorted(common)}
        begins_ns: dict[int, list[int]] = {step: [] for step in lengths_ns}
        ends_ns: dict[int, list[int]] = {step: [] for step in lengths_ns}
        clocks = {clock.rank: clock for clock in self.clocks}
        for summary in self.ranks:
            for step in summary.steps:
                if step.step in common:
                    clock = clocks[summary.rank]
                    lengths_ns[step.step].append(step.step_ns)
                    begins_ns[step.step].append(clock.moment_to_run(step.start_ns))
                    ends_ns[step.step].append(clock.moment_to_run(step.start_ns + step.step_ns))
        if self.ranks_are_independent or not clocks_are_comparable(self.ranks, self.clocks):
            return {step: round(statistics.median(of_ranks_ns)) for step, of_ranks_ns in lengths_ns.items()}
        return {step: max(ends_ns[step]) - max(begins_ns[step]) for step in lengths_ns}

    @cached_property
    def _common_steps(self) -> frozenset[int]:
        measured = [summary for summary in self.ranks if summary.is_measured]
        complete = [frozenset(s.step for s in summary.steps if s.complete) for summary in measured]
        return frozenset.intersection(*complete) if complete else frozenset()


def short_repr(text: str, most: int = 80) -> str:
    """Return `repr` of a text, of which at most so many characters are shown."""
    return repr(shortened(text, most))


def _sends_to_unknown(summary: RankSummary) -> bool:
    """Return whether a rank spends time in messages alone, whose peers are not known."""
    return not len(summary.collectives) + len(summary.messages) and any(step.exposed_comm_ns for step in summary.steps)


def _shares_collectives(summary: RankSummary) -> bool:
    """Return whether a rank has collectives with others, or with members that are not known."""
    groups = np.unique(summary.collectives.group).tolist()
    return any(group == ABSENT or len(summary.groups[group].ranks) != 1 for group in groups)


def format_ranges(numbers: Iterable[int]) -> str:
    """Return `0-3,5` for the numbers 0, 1, 2, 3 and 5.

    Without numbers it is "none". After eight ranges it ends with "...".
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    ranges = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:_SHOWN_RANGES]]
    return ",".join(ranges) + (",..." if len(runs) > _SHOWN_RANGES else "") if runs else "none"


def ranks_text(ranks: Collection[int]) -> str:
    """Return `rank 3`, or `ranks 0-3,5` for several."""
    return f"rank{'s' * (len(ranks) != 1)} {format_ranges(ranks)}"


@dataclass(frozen=True, kw_only=True)
class ClockModel:
    """A rank's clock against the reference's: `t_run = t_rank - offset_ns - drift * (t_rank - at_ns)`.

    Attributes:
        method: the probe measured it; it is the clock of the reference's host; wall clocks agree within what
            collectives and messages show; it was fitted to the ends of collectives; messages bound it; it is not known.
        error_ns: half-width of the uncertainty, anywhere in the recording; None when it is not known. A difference
            between two ranks is uncertain by the sum of both.
        jump_ns: by how much it jumps ahead within the recording, or back; None if it does not. Times of such a rank are
            not compared.
    """

    rank: int
    method: Method
    offset_ns: int = 0
    at_ns: int = 0
    drift_ppm: float | None = None
    error_ns: int | None = None
    jump_ns: int | None = None

    def to_run(self, time_ns: Int64) -> Int64:
        """Return times of the rank, int64 [n], on the run's clock."""
        shifted = time_ns - self.offset_ns
        if not self.drift_ppm:
            return shifted
        drifted: Int64 = np.rint((time_ns - self.at_ns) * (self.drift_ppm * 1e-6)).astype(np.int64)
        return shifted - drifted

    def moment_to_run(self, time_ns: int) -> int:
        """Return `to_run` of one point of time, without arrays."""
        return time_ns - self.offset_ns - round((time_ns - self.at_ns) * ((self.drift_ppm or 0.0) * 1e-6))

    def intervals_to_run(self, start_ns: Int64, end_ns: Int64) -> tuple[Int64, Int64]:
        """Return both ends of n intervals on the run's clock, int64 [n] each."""
        return self.to_run(start_ns), self.to_run(end_ns)


def clocks_are_comparable(ranks: Sequence[RankSummary], clocks: Sequence[ClockModel]) -> bool:
    """Return whether times of different ranks can be compared: the clocks of all of them are known.

    A rank whose device records are lost does not count: it has no times.
    """
    unmeasured = {summary.rank for summary in ranks if summary.unmeasured is not None}
    counting = [clock for clock in clocks if clock.rank not in unmeasured]
    return len(counting) == 1 or all(clock.method != "none" for clock in counting)


def largest_pair_error_ns(clocks: Iterable[ClockModel]) -> int:
    """Return by how much times of two ranks with these clocks may be off each other, in ns."""
    return sum(sorted(clock.error_ns or 0 for clock in clocks)[-2:])
