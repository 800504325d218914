"""How long each rank pauses in which steps, and how long the others wait for it in communication."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tracekit.analysis.events.pauses.pause_times import PAUSES
from tracekit.analysis.pauses.parts import PAUSE_TIMES, RankPauses
from tracekit.model.communication import KINDS
from tracekit.model.events import Int64
from tracekit.model.run import Run, clocks_are_comparable
from tracekit.model.spans import CHECKPOINT_ACTIONS, CHECKPOINT_FUNCTIONS
from tracekit.model.summary import RankSummary

__all__ = ["RankPause", "paused_by_step_ns", "rank_pauses"]


@dataclass(frozen=True, kw_only=True)
class RankPause:
    """The pauses of one kind of one rank, over its complete steps.

    Attributes:
        pause: one of `PAUSES`.
        action: of a checkpoint, the one of `CHECKPOINT_ACTIONS` that takes longest.
        function: what does it.
        by_step_ns: the time of each step that has such a pause.
        waiting_ns: the part in which it waits in communication.
        of_steps: how many complete steps the rank has.
        waits_ns: for how long others waited for it, the median of them, by kind of communication. None if the clocks
            of the ranks cannot be compared.
    """

    rank: int
    pause: str
    action: str | None
    function: str | None
    by_step_ns: dict[int, int]
    waiting_ns: int
    of_steps: int
    waits_ns: dict[str, int] | None = field(default_factory=dict)

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

    @property
    def wait_kind(self) -> str | None:
        """The kind of communication in which others waited longest for it."""
        return max(self.waits_ns, key=self.waits_ns.__getitem__) if self.waits_ns else None

    @property
    def others_wait_ns(self) -> int | None:
        """For how long others waited for it in all steps."""
        return None if self.waits_ns is None else sum(self.waits_ns.values())


def rank_pauses(run: Run) -> list[RankPause]:
    """Return the pauses of all ranks in their complete steps, by kind and rank."""
    comparable = clocks_are_comparable(run.ranks, run.clocks)
    found = []
    for number, pause in enumerate(PAUSES):
        for place, summary in enumerate(run.ranks):
            kept = summary[PAUSE_TIMES]
            complete = {step.step for step in summary.steps if step.complete}
            rows = np.flatnonzero((kept.pause == number) & np.isin(kept.step, sorted(complete)))
            if not len(rows):
                continue
            kept = kept.rows(rows)
            by_step = Counter[int]()
            for step, time_ns in zip(kept.step.tolist(), (kept.end_ns - kept.start_ns).tolist(), strict=True):
                by_step[step] += time_ns
            found.append(
                RankPause(
                    rank=summary.rank,
                    pause=pause,
                    action=_longest(kept, kept.action, CHECKPOINT_ACTIONS),
                    function=_longest(kept, kept.function, CHECKPOINT_FUNCTIONS),
                    by_step_ns=dict(by_step),
                    waiting_ns=int(kept.waiting_ns.sum()),
                    of_steps=len(complete),
                    waits_ns=_waits_ns(run, place, kept) if comparable else None,
                )
            )
    return found


def paused_by_step_ns(run: Run) -> dict[int, int]:
    """Return how long each step is paused, on the rank that pauses longest in it."""
    longest_ns: dict[int, int] = {}
    for summary in run.ranks:
        kept, of_rank = summary[PAUSE_TIMES], Counter[int]()
        for step, time_ns in zip(kept.step.tolist(), (kept.end_ns - kept.start_ns).tolist(), strict=True):
            of_rank[step] += time_ns
        for step, time_ns in of_rank.items():
            longest_ns[step] = max(longest_ns.get(step, 0), time_ns)
    return longest_ns


def _longest(kept: RankPauses, column: np.ndarray, names: tuple[str, ...]) -> str | None:
    known = column >= 0
    if not known.any():
        return None
    totals = np.bincount(column[known], (kept.end_ns - kept.start_ns)[known], len(names))
    return names[int(totals.argmax())]


def _waits_ns(run: Run, place: int, kept: RankPauses) -> dict[str, int]:
    """Return for how long the other ranks waited for the pauses of one, by kind of communication.

    A pause delays the rank's next collective. Others wait there until the rank comes, and for the pause at most.
    """
    summary, waits = run.ranks[place], Counter[str]()
    ready_ns = summary.collectives.ready_ns
    order = np.argsort(ready_ns, kind="stable")
    following = np.append(order, -1)[np.searchsorted(ready_ns[order], kept.end_ns, side="left")]
    for kind, row, others_ns in _instances(run, place, following):
        paused_ns = int((kept.end_ns - kept.start_ns)[following == row].sum())
        waited_ns = int(run.clocks[place].to_run(ready_ns[row : row + 1])[0]) - int(np.median(others_ns))
        waits[kind] += min(max(waited_ns, 0), paused_ns)
    return {kind: time_ns for kind, time_ns in waits.items() if time_ns}


def _instances(run: Run, place: int, rows: Int64) -> Iterator[tuple[str, int, Int64]]:
    """Yield the matched collectives among some rows of a rank: kind, row, and when the others were ready, int64 [k]."""
    wanted = set(rows[rows >= 0].tolist())
    summaries: dict[int, tuple[int, RankSummary]] = {s.rank: (i, s) for i, s in enumerate(run.ranks)}
    rank = run.ranks[place].rank
    for matched in run.collectives:
        column = np.flatnonzero(matched.ranks == rank)
        if not len(column):
            continue
        for instance in np.flatnonzero(np.isin(matched.row[int(column[0])], sorted(wanted))).tolist():
            others = []
            for member, row in zip(matched.ranks.tolist(), matched.row[:, instance].tolist(), strict=True):
                if member != rank and row >= 0:
                    other, summary = summaries[member]
                    others.append(int(run.clocks[other].to_run(summary.collectives.ready_ns[row : row + 1])[0]))
            if others:
                row = int(matched.row[int(column[0]), instance])
                yield KINDS[int(matched.kind[instance])], row, np.array(others, dtype=np.int64)
