"""What the last rank to arrive at each instance did before, compared with its peers.

Two things are compared. The segment is the time from the last release until the rank was ready: it tells by how much
the rank is late by itself. The stretch is a part of the program, from one instance of the group to another, that
contains the segment: all ranks run the same program there. So a rank that launched more in it has more work, and one
whose operations took longer for the same is slow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.stats.leave_one_out import majority_excluding, median_excluding
from tracekit.analysis.stragglers.arrivals.group_columns import GroupColumns, column_at
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.run import Run

__all__ = ["PeerComparison", "compare_with_peers"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PeerComparison:
    """Of m instances; int64 [m] each, the work as bool [m]. What is beyond the peers is beyond their median.

    Attributes:
        released_ns: the last rank's last release, on its clock.
        passed_row: of its collectives, the last one that released all of its peers later and that it passed without
            waiting; or -1.
        since_ns: when it was ready for that, else its release: from then on the segments are compared.
        excess_ns: by how much its segment is longer.
        data_ns: by how much longer it loaded data.
        compute_ns: by how much longer its operations took in the stretch.
        operations: how many more it began there.
        usual_operations: the median of its peers.
        differs: whether its work there was other than its peers'.
    """

    released_ns: Int64
    passed_row: Int64
    since_ns: Int64
    excess_ns: Int64
    data_ns: Int64
    compute_ns: Int64
    operations: Int64
    usual_operations: Int64
    differs: Bool


def compare_with_peers(of: GroupColumns, last: Int64) -> PeerComparison:
    """Compare the last rank of each of m instances with the others. last: int64 [m], its place among the members."""
    known, each = of.known, np.arange(len(last))
    rank, row = of.members[last], of.row[each, last]
    released_ns, ready_ns = of.column("released_ns"), of.column("ready_ns")
    segment_ns = ready_ns - released_ns
    released_ns, ready_ns = released_ns[each, last], ready_ns[each, last]
    passed_row = _last_passed(of.run, rank, row, _released_before_ns(of, last))
    passed = passed_row != ABSENT
    since_ns = np.where(passed, column_at(of.run, rank, passed_row, "ready_ns"), released_ns)
    loaded_ns = of.column("data_ns")
    loaded_before_ns = np.where(passed, column_at(of.run, rank, passed_row, "data_ns"), 0)
    others = known.sum(axis=1) > 1
    excess_ns = ready_ns - since_ns - median_excluding(segment_ns, known, last)
    data_ns = loaded_ns[each, last] - loaded_before_ns - median_excluding(loaded_ns, known, last)
    stretch = _stretches(of, last, since_ns)
    took_ns, operations, work = map(stretch.of_column, ("work_ns", "operations", "work"))
    usual = median_excluding(operations, stretch.known, last)
    alike = stretch.known.sum(axis=1) > 1
    return PeerComparison(
        released_ns=released_ns,
        passed_row=passed_row,
        since_ns=since_ns,
        excess_ns=np.where(others, excess_ns, 0),
        data_ns=np.where(others, data_ns, 0),
        compute_ns=np.where(alike, took_ns[each, last] - median_excluding(took_ns, stretch.known, last), 0),
        operations=np.where(alike, operations[each, last] - usual, 0),
        usual_operations=usual,
        differs=alike & (work[each, last] != majority_excluding(work, stretch.known, last)),
    )


def _released_before_ns(of: GroupColumns, last: Int64) -> Int64:
    """Return how much earlier the last rank was released than any of its peers, int64 [m]."""
    released_ns, each = of.column("released_ns", on_run=True), np.arange(len(last))
    own_ns = released_ns[each, last]
    released_ns[~of.known] = released_ns[each, last] = np.iinfo(np.int64).max
    return np.where(of.known.sum(axis=1) > 1, released_ns.min(axis=1) - own_ns, 0)


def _last_passed(run: Run, rank: Int64, row: Int64, before_peers_ns: Int64) -> Int64:
    """Return the last collective, int64 [m], that released the peers but that the last rank passed without waiting.

    A rank that is always last never waits, so that its segment goes back further than its peers'. What it did before
    that collective must not be compared with them; -1 where there is none.

    rank: int64 [m], place of the last rank. row: int64 [m], of its collectives. before_peers_ns: int64 [m], how much
    earlier it was released than any of its peers.
    """
    result = np.full(len(row), ABSENT, dtype=np.int64)
    early = np.flatnonzero(before_peers_ns > 0)
    for member in np.unique(rank[early]).tolist():
        here = early[rank[early] == member]
        collectives = run.ranks[member].collectives
        order = np.argsort(collectives.ready_ns, kind="stable")
        released_ns = collectives.released_ns[row[here]] + before_peers_ns[here]
        place = np.searchsorted(collectives.ready_ns[order], released_ns, side="right") - 1
        earlier = order[np.maximum(place, 0)]
        same_segment = collectives.released_ns[earlier] == collectives.released_ns[row[here]]
        result[here] = np.where((place >= 0) & (earlier != row[here]) & same_segment, earlier, ABSENT)
    return result


@dataclass(frozen=True, kw_only=True, eq=False)
class _Stretches:
    """Parts of the program, the same on the k ranks of each of m instances.

    Attributes:
        begin: int64 [m], the instance with which each begins, or -1 for the recording's beginning.
        known: bool [m, k], which ranks have both ends.
    """

    of: GroupColumns
    begin: Int64
    known: Bool

    def of_column(self, name: str) -> Int64:
        """Return what a column that counts from the recording's beginning grows by, int64 [m, k]."""
        values = self.of.column(name)
        return values - np.where((self.begin >= 0)[:, None], values[self.begin], 0)


def _stretches(of: GroupColumns, last: Int64, since_ns: Int64) -> _Stretches:
    """Return the stretch before each instance, from the last one of the group that had ended at `since_ns` (int64 [m],
    on the last rank's clock) to this one.
    """
    ended_ns = of.column("end_ns")
    begin = np.full(len(last), ABSENT, dtype=np.int64)
    for member in np.unique(last).tolist():
        here = np.flatnonzero(last == member)
        found = np.searchsorted(np.maximum.accumulate(ended_ns[:, member]), since_ns[here], side="right") - 1
        begin[here] = np.minimum(found, here - 1)
    known = of.known & (of.known[begin] | (begin < 0)[:, None])
    known[np.arange(len(last)), last] = True
    return _Stretches(of=of, begin=begin, known=known)
