"""Which changes would shorten the step, and by how much: each candidate is tried in a replay.

`Replays` tells how long the steps take with measured durations, with ideal ones, and with any mixture of the two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

import numpy as np

from tracekit.explain.step_time.step_lengths import uncounted_first_steps
from tracekit.explain.whatif.candidates import Candidate, candidates, made_together
from tracekit.findings.finding import Remedy
from tracekit.findings.thresholds import LISTED_SAVING, NOTABLE_SAVING
from tracekit.model.events import Bool, Float64, Int64
from tracekit.rank.pauses import PAUSES
from tracekit.replay.operation_graph import NO_TRAINING, GraphSteps, OperationGraph
from tracekit.replay.replay import group_values
from tracekit.stats.uncertainty import is_worthwhile, standard_error

_SHOWN = 3
_SHOWN_TOGETHER = 4  # changes that are made at once
_CLEARLY_MORE = 1.02  # times the saving without one of several changes: with less it is not worth the effort
_MORE_THAN_ONE = 1.25  # times the saving of one of its ranks: with less a set says nothing new
_LEAST_OF_EVEN_LOAD = 0.5  # of what it saves if the rank with the most is as the others
_FEWEST_STEPS = 2  # that savings are known of: how they vary must be known
_PAUSED = 0.1  # of the largest saving of a step
_MOSTLY = 0.8  # of the saving: if one rank alone has it, that rank is named

_REPLAYS_AT_ONCE = 16
_MANY_OPERATIONS = 4_000_000  # a replay of more takes a second or more
_MOST_AT_ONCE = 4_000_000  # durations that are replayed at a time, about 50 bytes each


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change and what it saves.

    Attributes:
        what: the change in words.
        remedy: what is changed.
        saves_ns_per_step: how much shorter the mean step would be.
        error_ns: the uncertainty of that, from the replay's error, the spread over steps and the clocks' uncertainty.
        share: the saving as a share of the measured step.
        rank: the rank to change, if it is one.
        ranks: the ranks that it is about: those to change, or those that a link connects.
    """

    what: str
    remedy: Remedy
    saves_ns_per_step: int
    error_ns: int
    share: float
    rank: int | None = None
    ranks: tuple[int, ...] = ()


@dataclass(kw_only=True, eq=False)
class Trials:
    """The changes of a run that are tried, alone or after others.

    Attributes:
        steps_ns: the steps as replayed, float64 [s].
        measured_ns: the mean measured step.
        replay_error: T / measured step - 1.
        tried: what is tried.
    """

    replays: Replays
    steps_ns: Float64
    measured_ns: float
    replay_error: float
    tried: Sequence[Candidate]
    _replayed_ns: dict[frozenset[str], Float64] = field(default_factory=dict)

    @classmethod
    def of(
        cls, replays: Replays, steps_ns: Float64, measured_ns: float, replay_error: float, ranks: Iterable[int]
    ) -> Trials:
        """Return the trials of a graph. ranks: those to try first."""
        tried = candidates(replays.graph, ranks, steps=len(steps_ns), many=replays.are_long)
        trials = cls(
            replays=replays, steps_ns=steps_ns, measured_ns=measured_ns, replay_error=replay_error, tried=tried
        )
        trials._replayed_ns[frozenset()] = steps_ns
        if tried:
            each_ns = replays.each_step_ns(candidate.durations() for candidate in tried)
            trials._replayed_ns |= {frozenset([c.what]): ns for c, ns in zip(tried, each_ns.T, strict=True)}
        return trials

    def change(self, candidate: Candidate, made: Sequence[Candidate] = ()) -> Change | None:
        """Return what a change saves once others are made; None if that does not exceed its uncertainty."""
        saved_ns = self._with(made) - self._with([*made, candidate])
        if candidate.remedy not in PAUSES:  # some pauses are in few steps
            saved_ns = saved_ns[self._uncounted_steps :]
        return _change(candidate, saved_ns, self.measured_ns, self.replay_error, self.replays.graph.clock_error_ns)

    @property
    def _uncounted_steps(self) -> int:
        """Return how many of the first steps do not count.

        Where a rank begins to record late, the first step is shorter, and so is what it can save.
        """
        first, steps = self.replays.graph.step_groups[0], len(self.steps_ns)
        begins_late = first.begin_ns > NOTABLE_SAVING * first.measured_ns[0]
        return max(uncounted_first_steps(steps), int(begins_late and steps > _FEWEST_STEPS))

    def _with(self, made: Sequence[Candidate]) -> Float64:
        """Return the steps with several changes, float64 [s]."""
        key = frozenset(candidate.what for candidate in made)
        if key not in self._replayed_ns:
            together = made_together(self.replays.graph, list(made))
            self._replayed_ns[key] = self.replays.each_step_ns([together.durations()])[:, 0]
        return self._replayed_ns[key]


def find_worthwhile_changes(trials: Trials) -> tuple[Change, ...]:
    """Return the changes whose saving exceeds its uncertainty, the largest saving first."""
    found = {change: candidate for candidate in trials.tried if (change := trials.change(candidate)) is not None}
    shown = _without_repetition(_without_explained_by_load(list(found)))
    parts = sorted(shown, key=lambda change: -change.saves_ns_per_step)
    parts = [change for change in parts if change.remedy != "network"][:_SHOWN_TOGETHER]
    shown += _best_together(trials, [(change, found[change]) for change in parts])
    return tuple(sorted(shown, key=lambda change: -change.saves_ns_per_step))


def _change(
    candidate: Candidate, saved_ns: Float64, measured_ns: float, replay_error: float, clock_error_ns: int
) -> Change | None:
    """Return the change if its saving exceeds its uncertainty. saved_ns: of each step, float64 [s]."""
    mean_ns = min(float(saved_ns.mean()), measured_ns)
    varies_ns = _pauses_error_ns(saved_ns) if candidate.remedy in PAUSES else standard_error(saved_ns)
    error_ns = float(np.sqrt((mean_ns * replay_error) ** 2 + varies_ns**2 + clock_error_ns**2))
    if not is_worthwhile(mean_ns, error_ns, measured_ns, LISTED_SAVING):
        return None
    return Change(
        what=candidate.what,
        remedy=candidate.remedy,
        saves_ns_per_step=round(mean_ns),
        error_ns=round(error_ns),
        share=mean_ns / measured_ns,
        rank=candidate.ranks[0] if len(candidate.ranks) == 1 else None,
        ranks=candidate.ranks,
    )


def _pauses_error_ns(saved_ns: Float64) -> float:
    """Return how uncertain it is what steps without some pauses save, in the mean of these steps, float64 [s].

    Which steps have a pause is known. What varies is how long each is, and how long the other steps are.
    """
    paused = saved_ns > _PAUSED * saved_ns.max()
    parts = [part for part in (saved_ns[paused], saved_ns[~paused]) if len(part) > 1]
    return sum(len(part) / len(saved_ns) * standard_error(part) for part in parts)


def _without_explained_by_load(changes: list[Change]) -> list[Change]:
    """Return the changes without those that treat what uneven expert load does: a rank that computes longer, and a
    group whose exchanges take longer, because of one rank's load. Even load saves at least half as much: of two ranks,
    the other gets half of the excess.
    """
    loads = [change for change in changes if change.remedy == "load" and change.rank is not None]

    def explained(change: Change) -> bool:
        treats = change.rank is not None if change.remedy == "ranks" else change.remedy == "link"
        return treats and any(
            load.rank in change.ranks and load.saves_ns_per_step >= _LEAST_OF_EVEN_LOAD * change.saves_ns_per_step
            for load in loads
        )

    return [change for change in changes if not explained(change)]


def _without_repetition(changes: list[Change]) -> list[Change]:
    """Return the changes without those that say nothing new.

    At most `_SHOWN` ranks and links are shown. A set of ranks has to save more than one of them does. What ranks do
    instead of training has to save more on all of them than on one.
    """
    alone = [change for change in changes if change.remedy == "ranks" and change.rank is not None]
    alone_ns = {change.rank: change.saves_ns_per_step for change in alone}
    links = [change for change in changes if change.remedy == "link"]
    dropped = [*alone[_SHOWN:], *links[_SHOWN:]]
    for change in changes:
        if change.remedy == "ranks" and change.rank is None:
            most_ns = max(alone_ns.get(rank, 0) for rank in change.ranks)
            dropped += [change] if change.saves_ns_per_step <= _MORE_THAN_ONE * most_ns else []
    for remedy in NO_TRAINING:
        of_remedy = [change for change in changes if change.remedy == remedy]
        if len(of_remedy) == 2:
            everywhere, one = of_remedy
            dropped.append(everywhere if one.saves_ns_per_step >= _MOSTLY * everywhere.saves_ns_per_step else one)
    return [change for change in changes if not any(change is other for other in dropped)]


def _best_together(trials: Trials, parts: list[tuple[Change, Candidate]]) -> list[Change]:
    """Return the change that makes several of the others at once; none if no two save more than one of them.

    parts: those with the largest savings first. One after another is added if the step is then clearly shorter.
    """
    if not parts:
        return []
    best, made = parts[0][0], [parts[0][1]]
    for _, part in parts[1:]:
        change = trials.change(made_together(trials.replays.graph, [*made, part]))
        if change is not None and change.saves_ns_per_step > _CLEARLY_MORE * best.saves_ns_per_step:
            best, made = change, [*made, part]
    return [best] if len(made) > 1 else []


class Replays:
    """Replays of an operation graph.

    Attributes:
        graph: what is replayed.
        measured: of each group of steps the durations as measured, float64 [n, k].
        ideal: the durations with every task of compute at the mean of its kind, and every transfer at the median of
            its kind, over ranks and steps.
    """

    def __init__(self, graph: OperationGraph) -> None:
        self.graph = graph
        self.measured = [group.duration_ns for group in graph.step_groups]
        ideal_ns = _ideal_times(graph)
        self.ideal = [
            group.with_task_times(np.broadcast_to(ideal_ns[group.kind, None], group.task_ns.shape))
            for group in graph.step_groups
        ]

    @property
    def are_long(self) -> bool:
        """Whether a replay takes so long that few are made."""
        return sum(duration_ns.size for duration_ns in self.measured) > _MANY_OPERATIONS

    def step_ns(self, durations: list[Float64]) -> Float64:
        """Return how long each step takes, float64 [s]. durations: of each group of steps, float64 [n, k]."""
        groups = zip(self.graph.step_groups, durations, strict=True)
        return np.concatenate([group.step_ns(duration_ns) for group, duration_ns in groups])

    def each_step_ns(self, durations: Iterable[list[Float64]]) -> Float64:
        """Return how long each step takes with each of j durations, float64 [s, j].

        durations: j times what `step_ns` takes. Many are replayed at a time, which costs little more than one. Of an
        iterator only these are held at a time.
        """
        at_once = max(1, min(_REPLAYS_AT_ONCE, _MOST_AT_ONCE // max(sum(part.size for part in self.measured), 1)))
        remaining, replayed = iter(durations), []
        while batch := list(islice(remaining, at_once)):
            of_groups = zip(self.graph.step_groups, zip(*batch, strict=True), strict=True)
            replayed.append(np.concatenate([group.each_step_ns(of_group) for group, of_group in of_groups]))
        return np.concatenate(replayed, axis=1)

    def mixed_ns(self, is_measured: Callable[[GraphSteps], Bool]) -> float:
        """Return the mean step if the chosen operations, bool [n], last as measured, and the others ideally."""
        groups = zip(self.graph.step_groups, self.measured, self.ideal, strict=True)
        return float(
            self.step_ns(
                [np.where(is_measured(group)[:, None], measured, ideal) for group, measured, ideal in groups]
            ).mean()
        )

    @cached_property
    def measured_and_ideal_ns(self) -> Float64:
        """How long each step takes as measured, and if all is ideal, float64 [s, 2]."""
        return self.each_step_ns([self.measured, self.ideal])

    @property
    def ideal_ns(self) -> float:
        """The mean step if all is ideal, T_ideal."""
        return float(self.measured_and_ideal_ns[:, 1].mean())

    @cached_property
    def largest_possible_delay_ns(self) -> dict[int, float]:
        """Return for each rank an upper bound of the time that it alone adds to the mean step.

        It is the time that all its operations last beyond the ideal. No path through the graph holds more of it.
        """
        beyond_ns: dict[int, float] = defaultdict(float)
        for group, measured, ideal in zip(self.graph.step_groups, self.measured, self.ideal, strict=True):
            by_operation_ns = np.maximum(measured - ideal, 0).sum(axis=1)
            ranks, index = np.unique(group.rank, return_inverse=True)
            for rank, rank_ns in zip(ranks.tolist(), np.bincount(index, by_operation_ns).tolist(), strict=True):
                if rank >= 0:
                    beyond_ns[rank] += rank_ns
        steps = sum(len(group.measured_ns) for group in self.graph.step_groups)
        return {rank: rank_ns / steps for rank, rank_ns in beyond_ns.items()}

    def slowdowns(self, label: Callable[[GraphSteps], Int64]) -> dict[int, float]:
        """Return the slowdown S of each label: only operations with this label last as measured, the others ideally.

        label: gives each operation its label, int64 [n]; -1 is none.
        """
        of_operation = [label(group)[:, None] for group in self.graph.step_groups]
        every = np.unique(np.concatenate(of_operation))
        labels = every[every >= 0].tolist()
        if not labels:
            return {}
        durations = (
            [
                np.where(of_group == chosen, measured, ideal)
                for of_group, measured, ideal in zip(of_operation, self.measured, self.ideal, strict=True)
            ]
            for chosen in labels
        )
        mean_ns = self.each_step_ns(durations).mean(axis=0)
        slowdowns = mean_ns / self.ideal_ns if self.ideal_ns else np.ones(len(labels))
        return dict(zip(labels, slowdowns.tolist(), strict=True))


def _ideal_times(graph: OperationGraph) -> Float64:
    """Return how long a task of each kind lasts ideally, float64 [kinds]."""
    parts = [(group, group.has_operations) for group in graph.step_groups]
    kind = np.concatenate([np.repeat(group.kind[some], group.task_ns.shape[1]) for group, some in parts])
    task_ns = np.concatenate([group.task_ns[some].ravel() for group, some in parts])
    ideal_ns = np.zeros(max(int(group.kind.max(initial=-1)) for group in graph.step_groups) + 1)
    for number, values_ns in group_values(kind, task_ns):
        ideal_ns[number] = np.median(values_ns) if number in graph.communication_kinds else values_ns.mean()
    return ideal_ns
