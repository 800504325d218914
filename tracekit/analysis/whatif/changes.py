"""Which changes would shorten the step, and by how much: each candidate is tried in a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.events.pauses.pause_times import PAUSES
from tracekit.analysis.replay.operation_graph import NO_TRAINING, OperationGraph
from tracekit.analysis.stats.uncertainty import is_worthwhile, standard_error
from tracekit.analysis.whatif.candidates import Candidate, candidates, made_together
from tracekit.analysis.whatif.replays import Replays
from tracekit.findings.finding import Remedy
from tracekit.findings.thresholds import LISTED_SAVING
from tracekit.model.events import Float64

__all__ = ["Change", "find_worthwhile_changes"]

_SHOWN = 3
_SHOWN_TOGETHER = 4  # changes that are made at once
_CLEARLY_MORE = 1.02  # times the saving without one of several changes: with less it is not worth the effort
_MORE_THAN_ONE = 1.25  # times the saving of one of its ranks: with less a set says nothing new
_LEAST_OF_EVEN_LOAD = 0.5  # of what it saves if the rank with the most is as the others
_PAUSED = 0.1  # of the largest saving of a step
_MOSTLY = 0.8  # of the saving: if one rank alone has it, that rank is named


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


def find_worthwhile_changes(
    replays: Replays, steps_ns: Float64, measured_ns: float, replay_error: float, ranks: Iterable[int]
) -> tuple[Change, ...]:
    """Return the changes whose saving exceeds its uncertainty, the largest saving first.

    steps_ns: float64 [s], the steps as replayed. measured_ns: the mean measured step. ranks: those to try first.
    """
    graph = replays.graph
    tried = candidates(graph, ranks, steps=len(steps_ns), many=replays.are_long)
    if not tried:
        return ()

    def changes_of(several: list[Candidate]) -> list[Change | None]:
        saved_ns = steps_ns[:, None] - replays.each_step_ns(candidate.durations() for candidate in several)
        return [
            _change(candidate, of_steps_ns, measured_ns, replay_error, graph.clock_error_ns)
            for candidate, of_steps_ns in zip(several, saved_ns.T, strict=True)
        ]

    changes = changes_of(tried)
    shown = _without_repetition(_without_explained_by_load([change for change in changes if change is not None]))
    kept = [tried[changes.index(change)] for change in shown]
    parts = sorted(zip(shown, kept, strict=True), key=lambda pair: -pair[0].saves_ns_per_step)
    parts = [(change, candidate) for change, candidate in parts if change.remedy != "network"]
    shown += _best_together(graph, parts[:_SHOWN_TOGETHER], changes_of)
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


def _best_together(
    graph: OperationGraph,
    parts: list[tuple[Change, Candidate]],
    changes_of: Callable[[list[Candidate]], list[Change | None]],
) -> list[Change]:
    """Return the change that makes several of the others at once; none if no two save more than one of them.

    parts: those with the largest savings first. One after another is added if the step is then clearly shorter.
    """
    if not parts:
        return []
    best, made = parts[0][0], [parts[0][1]]
    for _, part in parts[1:]:
        (change,) = changes_of([made_together(graph, [*made, part])])
        if change is not None and change.saves_ns_per_step > _CLEARLY_MORE * best.saves_ns_per_step:
            best, made = change, [*made, part]
    return [best] if len(made) > 1 else []
