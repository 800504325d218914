"""Ranks that are late in some steps only, and ranks that compute nothing in some.

A rank, or the ranks of one machine or group, are late in a step in which they work longer than their peers by a notable
share of it. They are named if no other rank is late in any step, and if that is no chance. Bursts hit a rank now and
then (`certainty`): that one of k candidates has m bursts of x or more in n steps has about the chance

    k n q r^(m - 1) exp(-x m / h)

A rank without data takes part in communication, and computes next to nothing, so that nobody waits for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tracekit.explain.pauses.tables import PAUSE_TIMES
from tracekit.explain.stragglers.certainty import BURST_AGAIN, BURST_CHANCE, BURST_SHARE
from tracekit.explain.stragglers.slow_ranks import WorkTimes, work_times
from tracekit.findings.finding import Certainty, Condition
from tracekit.findings.thresholds import NOTABLE_SAVING, NOTABLE_SHARE
from tracekit.model.events import Bool, Int64
from tracekit.model.run import Run

_FEWEST = 3  # steps in which a rank is late: fewer are accidents
_ALIKE = 0.5  # of the lateness: a rank with as much in any step is late as well
_CHANCES: dict[Certainty, float] = {"sure": 1e-5, "likely": 0.005}
_NOTHING = 0.2  # of what peers compute in the step: with less there was no data
_USUAL = 0.8  # of what they compute, in the other steps


@dataclass(frozen=True, kw_only=True, eq=False)
class LateInSomeSteps:
    """Ranks that are late in some of the steps, in which no other is.

    Attributes:
        indexes: of the ranks in the run's ranks.
        late: of the steps, bool [s].
        series_ns: by how much they work longer than their peers, int64 [s].
        chance: how likely it is that any ranks are late so by chance.
        conditions: what it takes to be named.
    """

    indexes: tuple[int, ...]
    late: Bool
    series_ns: Int64
    chance: float
    conditions: tuple[Condition, ...]

    @property
    def mean_ns(self) -> float:
        """Return the delay in the mean step."""
        return float(self.series_ns[self.late].sum() / len(self.late))

    @property
    def certainty(self) -> Certainty | None:
        if not all(condition.holds for condition in self.conditions):
            return None
        return "sure" if self.chance <= _CHANCES["sure"] else "likely"


def late_in_some_steps(work: WorkTimes, step_ns: float) -> LateInSomeSteps | None:
    """Return the ranks that are late in some steps only; None without any that come near it.

    Pauses do not count: they have findings of their own.
    """
    pauses = [work.run.ranks[index][PAUSE_TIMES].by_step_ns() for index in work.rank_indexes]
    own_ns = work.own_ns - np.array([[by_step[step] for by_step in pauses] for step in work.steps], dtype=np.int64)
    sets = [(index,) for index in work.rank_indexes] + work.named_sets
    found = [each for indexes in sets if (each := _late(work, indexes, own_ns, step_ns, len(sets))) is not None]
    return max(found, key=lambda each: (each.certainty is not None, each.mean_ns, len(each.indexes)), default=None)


def _late(
    work: WorkTimes, indexes: tuple[int, ...], own_ns: Int64, step_ns: float, candidates: int
) -> LateInSomeSteps | None:
    slow = work.mask(indexes)
    beyond_ns = work.beyond_peers(own_ns, slow)
    compared = work.is_compared(slow)
    series_ns, others_ns = beyond_ns[:, slow].min(axis=1), beyond_ns[:, ~slow & compared]
    late = series_ns >= NOTABLE_SHARE * step_ns
    count, steps = int(late.sum()), len(late)
    if not 0 < count < steps or not compared[slow].all():
        return None
    least_ns = float(series_ns[late].min())
    largest_ns = max(int(np.abs(others_ns).max(initial=1)), int(np.abs(series_ns[~late]).max()))
    chance = candidates * steps * BURST_CHANCE * BURST_AGAIN ** (count - 1)
    chance *= math.exp(-least_ns * count / (BURST_SHARE * step_ns))
    what = "how long it is late in such a step, against what any other rank or step shows"
    times = _CHANCES["likely"] / max(chance, 1e-300)
    improbable = Condition(what="how improbable chance is, against what it takes", value=times, bound=1, unit="times")
    return LateInSomeSteps(
        indexes=indexes,
        late=late,
        series_ns=series_ns,
        chance=chance,
        conditions=(
            Condition(what="steps in which it is late", value=count, bound=_FEWEST, unit="steps"),
            Condition(what=what, value=least_ns / largest_ns, bound=1 / _ALIKE, unit="times"),
            improbable,
            NOTABLE_SAVING.reached_by(float(series_ns[late].sum()) / steps / step_ns),
        ),
    )


def without_work(work: WorkTimes) -> dict[int, list[int]]:
    """Return, by index of rank, in which steps it computed next to nothing, unlike in others."""
    nobody = np.zeros(len(work.rank_indexes), dtype=np.bool_)
    peers_ns = work.compute_ns - work.beyond_peers(work.compute_ns, nobody)
    nothing = (work.compute_ns < _NOTHING * peers_ns) & work.is_compared(nobody)
    worked = (~nothing).any(axis=0) & ((work.compute_ns >= _USUAL * peers_ns) | nothing).all(axis=0)
    columns = np.flatnonzero(worked & nothing.any(axis=0)).tolist()
    steps = np.array(work.steps)
    return {work.rank_indexes[column]: steps[nothing[:, column]].tolist() for column in columns}


def steps_without_work(run: Run) -> list[int]:
    """Return the steps in which a rank computes next to nothing: there its peers take no longer than usual."""
    work = work_times(run, sorted(run.common_steps())) if run.common_steps() else None
    return [] if work is None else sorted({step for steps in without_work(work).values() for step in steps})
