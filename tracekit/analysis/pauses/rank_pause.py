"""How long each rank pauses in which steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.events.pauses.pause_times import PAUSES
from tracekit.analysis.pauses.parts import PAUSE_TIMES, RankPauses
from tracekit.model.run import Run
from tracekit.model.spans import CHECKPOINT_ACTIONS, CHECKPOINT_FUNCTIONS

__all__ = ["RankPause", "paused_by_step_ns", "rank_pauses"]


@dataclass(frozen=True, kw_only=True, eq=False)
class RankPause:
    """The pauses of one kind of one rank, over its complete steps.

    Attributes:
        pause: one of `PAUSES`.
        action: of a checkpoint, the one of `CHECKPOINT_ACTIONS` that takes longest.
        function: what does it.
        by_step_ns: the time of each step that has such a pause.
        waiting_ns: the part in which it waits in communication.
        of_steps: how many complete steps the rank has.
        kept: the pauses one by one.
    """

    rank: int
    pause: str
    action: str | None
    function: str | None
    by_step_ns: dict[int, int]
    waiting_ns: int
    of_steps: int
    kept: RankPauses

    @property
    def total_ns(self) -> int:
        return sum(self.by_step_ns.values())

    @property
    def each_ns(self) -> float:
        """The mean of the steps that have such a pause."""
        return self.total_ns / len(self.by_step_ns)

    @property
    def mean_ns(self) -> float:
        """The mean of all steps."""
        return self.total_ns / self.of_steps

    @property
    def working_ns(self) -> float:
        """The mean of all steps, without what it waits in communication."""
        return (self.total_ns - self.waiting_ns) / self.of_steps


def rank_pauses(run: Run) -> list[RankPause]:
    """Return the pauses of all ranks in their complete steps, by kind and rank."""
    found = []
    for number, pause in enumerate(PAUSES):
        for summary in run.ranks:
            kept = summary[PAUSE_TIMES]
            complete = {step.step for step in summary.steps if step.complete}
            rows = np.flatnonzero((kept.pause == number) & np.isin(kept.step, sorted(complete)))
            if not len(rows):
                continue
            kept = kept.rows(rows)
            found.append(
                RankPause(
                    rank=summary.rank,
                    pause=pause,
                    action=_longest(kept, kept.action, CHECKPOINT_ACTIONS),
                    function=_longest(kept, kept.function, CHECKPOINT_FUNCTIONS),
                    by_step_ns=kept.by_step_ns(),
                    waiting_ns=int(kept.waiting_ns.sum()),
                    of_steps=len(complete),
                    kept=kept,
                )
            )
    return found


def paused_by_step_ns(run: Run) -> dict[int, int]:
    """Return how long each step is paused, on the rank that pauses longest in it."""
    longest_ns: dict[int, int] = {}
    for summary in run.ranks:
        for step, time_ns in summary[PAUSE_TIMES].by_step_ns().items():
            longest_ns[step] = max(longest_ns.get(step, 0), time_ns)
    return longest_ns


def _longest(kept: RankPauses, column: np.ndarray, names: tuple[str, ...]) -> str | None:
    known = column >= 0
    if not known.any():
        return None
    totals = np.bincount(column[known], kept.duration_ns[known], len(names))
    return names[int(totals.argmax())]
