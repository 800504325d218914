"""How long the other ranks wait in communication for the pauses of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from tracekit.analysis.pauses.parts import RankPauses
from tracekit.analysis.pauses.rank_pause import RankPause
from tracekit.analysis.stats.leave_one_out import leave_one_out_medians
from tracekit.model.clocks import clocks_are_comparable
from tracekit.model.collectives import MatchedGroup
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.run import Run

__all__ = ["WaitsForPauses"]


class WaitsForPauses:
    """The waits for pauses of a run: what they are found from is made once, and only if there are any."""

    def __init__(self, run: Run, found: Sequence[RankPause]) -> None:
        """found: the pauses of all ranks."""
        self._run, self._found = run, found
        self._comparable = clocks_are_comparable(run.ranks, run.clocks)
        self._place = {summary.rank: place for place, summary in enumerate(run.ranks)}
        self._ready_ns: dict[int, Int64] = {}
        self._in_group: dict[int, tuple[Int64, Bool]] = {}

    def by_kind_ns(self, pause: RankPause) -> dict[str, int] | None:
        """Return for how long the others waited, the median of them, by kind of communication.

        A pause delays the rank's next collective. Others wait there until the rank comes, and for as long as the pause
        is longer than their own of the same step. None if the clocks of the ranks cannot be compared.
        """
        if not self._comparable:
            return None
        kept, waits = pause.kept, Counter[str]()
        place = self._place[pause.rank]
        ready_ns = self._run.ranks[place].collectives.ready_ns
        order = np.argsort(ready_ns, kind="stable")
        following = np.append(order, ABSENT)[np.searchsorted(ready_ns[order], kept.end_ns, side="left")]
        longer_ns = self._longer_ns(pause, kept)
        for matched in self._run.collectives:
            for kind, row, late_ns in self._late_ns(matched, pause.rank, following):
                waits[kind] += min(max(late_ns, 0), int(longer_ns[following == row].sum()))
        return {kind: time_ns for kind, time_ns in waits.items() if time_ns}

    def _longer_ns(self, pause: RankPause, kept: RankPauses) -> Int64:
        """Return by how much each pause is longer than those of the others in its step, int64 [n].

        The pauses of a step are shorter in proportion.
        """
        others = [each for each in self._found if each.pause == pause.pause and each.rank != pause.rank]
        lacking = len(self._run.ranks) - 1 - len(others)
        share = {
            step: 1 - min(np.median([each.by_step_ns.get(step, 0) for each in others] + [0] * lacking) / time_ns, 1.0)
            for step, time_ns in pause.by_step_ns.items()
            if others
        }
        shares = np.array([share.get(step, 1.0) for step in kept.step.tolist()])
        longer_ns: Int64 = np.rint(shares * kept.duration_ns).astype(np.int64)
        return longer_ns

    def _late_ns(self, matched: MatchedGroup, rank: int, rows: Int64) -> Iterator[tuple[str, int, int]]:
        """Yield which of some rows of a rank are collectives of a group: kind, row, and how much later than the median
        of the others the rank was ready.
        """
        column = np.flatnonzero(matched.ranks == rank)
        if not len(column) or len(matched.ranks) < 2:
            return
        of_rank = matched.row[int(column[0])]
        late_ns, known = self._lateness(matched)
        instances = np.flatnonzero((of_rank != ABSENT) & np.isin(of_rank, rows) & known)
        for instance in instances.tolist():
            late = int(late_ns[int(column[0]), instance])
            yield KINDS[int(matched.kind[instance])], int(of_rank[instance]), late

    def _lateness(self, matched: MatchedGroup) -> tuple[Int64, Bool]:
        """Return how much later than the median of the others each rank was ready, int64 [k, m], and a mask [m] of the
        instances that several ranks have.
        """
        if id(matched) not in self._in_group:
            present = matched.row != ABSENT
            ready_ns = np.zeros(matched.row.shape, dtype=np.int64)
            for column, rank in enumerate(matched.ranks.tolist()):
                rows = matched.row[column][present[column]]
                ready_ns[column][present[column]] = self._ready_of(self._place[rank])[rows]
            others_ns = leave_one_out_medians(ready_ns.T, present.T).T
            self._in_group[id(matched)] = ready_ns - others_ns, present.sum(axis=0) > 1
        return self._in_group[id(matched)]

    def _ready_of(self, place: int) -> Int64:
        """Return when a rank was ready for each of its collectives, on the run's clock, int64 [n]."""
        if place not in self._ready_ns:
            collectives = self._run.ranks[place].collectives
            self._ready_ns[place] = self._run.clocks[place].to_run(collectives.ready_ns)
        return self._ready_ns[place]
