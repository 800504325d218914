"""The instances of one process group's collectives: who came last to each, and by how much its work exceeded others'.

`CollectiveInstances` has one instance a row, with flat columns over all groups. So a question about a run of a thousand
ranks is a handful of array operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.stats.leave_one_out import majority_excluding, median_excluding
from tracekit.model.collectives import MatchedGroup
from tracekit.model.columnar import Columnar
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.run import Run

__all__ = ["CollectiveInstances", "group_instances"]

_NEVER, _LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True, eq=False)
class CollectiveInstances(Columnar):
    """n instances of collectives, group by group, then the run's messages in their order.

    The attributes from `released_ns` on describe the segment of the last rank: the time from its last release to its
    arrival.

    Attributes:
        group: int64 [n], index into the run's groups, -1 for messages.
        kind: int64 [n], index into `KINDS`.
        members: int64 [n], how many ranks recorded it.
        rank: int64 [n], place in the run's ranks of the last to arrive, or -1 where several were last.
        row: int64 [n], row of that rank's `Collectives`, or `Messages`.
        step: int64 [n], as recorded, or -1.
        size_bytes: int64 [n], or -1.
        arrival_ns: int64 [n], the last arrival, on the run's clock.
        end_ns: int64 [n], the last end, on the run's clock.
        late_ns: int64 [n], between the last two arrivals; 0 where the clocks cannot tell them apart, and for messages,
            whose receivers may well be early.
        behind_ns: int64 [n], between the median of the others' arrivals and the last; 0 likewise.
        released_ns: int64 [n], the last rank's last release, on that rank's clock, or -1. If the collective was queued
            behind other communication, the end of that.
        excess_ns: int64 [n], by how much the segment is longer than the median of its peers'; 0 if queued.
        compute_ns: int64 [n], by how much more than its peers' median the rank computed.
        data_ns: int64 [n], by how much longer than its peers' median the rank loaded data.
        operations: int64 [n], how many more operations than its peers' median the rank began.
        usual_operations: int64 [n], that median.
        differs: bool [n], whether the rank's work was other than its peers'.
        detailed: bool [n], whether more than the excess is known.
        released_by: int64 [n], index of the instance that released the rank, or -1.
    """

    group: Int64
    kind: Int64
    members: Int64
    rank: Int64
    row: Int64
    step: Int64
    size_bytes: Int64
    arrival_ns: Int64
    end_ns: Int64
    late_ns: Int64
    behind_ns: Int64
    released_ns: Int64
    excess_ns: Int64
    compute_ns: Int64
    data_ns: Int64
    operations: Int64
    usual_operations: Int64
    differs: Bool
    detailed: Bool
    released_by: Int64


def group_instances(run: Run, matched: MatchedGroup, members: Int64) -> tuple[CollectiveInstances, Int64]:
    """Return the m instances of a group, and how long each of its k ranks waited in them, int64 [m, k].

    Arrays are [m, k], so that the ranks of an instance lie together in memory: sorting them is faster.
    """
    row = np.ascontiguousarray(matched.row.T)
    count, known = len(row), row >= 0
    complete = bool(known.all())
    each = np.arange(count)

    def gather(name: str, *, on_run: bool = False) -> Int64:
        """Return a column of all ranks, int64 [m, k]; `on_run`: times on the run's clock."""
        result = np.full(matched.row.shape, _NEVER if on_run else 0, dtype=np.int64)
        for of_rank, rows, member in zip(result, matched.row, members.tolist(), strict=True):
            values = getattr(run.ranks[member].collectives, name)
            if on_run:
                values = run.clocks[member].to_run(values)
            if complete:
                np.take(values, rows, out=of_rank)
            else:
                of_rank[rows >= 0] = values[rows[rows >= 0]]
        return np.ascontiguousarray(result.T)

    arrived_ns = gather("start_ns", on_run=True)
    ended_ns = gather("end_ns", on_run=True)
    end_ns = ended_ns.max(axis=1)
    last = np.argmax(arrived_ns, axis=1)
    arrival_ns = arrived_ns[each, last]
    errors_ns = np.array([run.clocks[member].error_ns or 0 for member in members], dtype=np.int64)
    # In a gather or a broadcast a rank may leave before the last one comes. It was not held up.
    held = known & (ended_ns + errors_ns + errors_ns.max(initial=0) >= arrival_ns[:, None])
    waited_ns = np.where(held, arrival_ns[:, None] - arrived_ns, 0)
    waited_ns[waited_ns <= errors_ns + errors_ns[last][:, None]] = 0
    several = held.sum(axis=1) > 1
    earlier = np.where(held, arrived_ns, _NEVER)
    earlier[each, last] = _NEVER
    late_ns = np.where(several, arrival_ns - np.where(several, earlier.max(axis=1), arrival_ns), 0)
    alone = several & (late_ns > 0)
    behind_ns = np.where(several, arrival_ns - median_excluding(arrived_ns, held, last), 0)
    del earlier, arrived_ns, ended_ns
    for apart_ns in (late_ns, behind_ns):
        apart_ns[apart_ns <= errors_ns[last] + errors_ns.max(initial=0)] = 0
    released_ns = gather("released_ns")
    segment_ns = gather("start_ns") - released_ns
    released_ns = released_ns[each, last]
    begun_ns = gather("released_ns", on_run=True)
    begun_ns[~known] = begun_ns[each, last] = _LATEST
    free_ns = np.where(several, segment_ns[each, last] - (arrival_ns - begun_ns.min(axis=1)), 0)
    del begun_ns
    earlier_row = _last_passed_collective(run, members[last], row[each, last], free_ns)
    beyond, usual = {}, {}
    for name in ("segment", "compute_ns", "data_ns", "operations"):
        values = segment_ns if name == "segment" else np.maximum(gather(name), 0)
        usual[name] = median_excluding(values, known, last)
        done = values[each, last] - _column_at(run, members[last], earlier_row, name)
        beyond[name] = np.where(several, done - usual[name], 0)
    work = gather("work")
    done = work[each, last] - _column_at(run, members[last], earlier_row, "work")
    differs = several & (done != majority_excluding(work, known, last))
    queued_ns = gather("queued_ns")[each, last]
    queued = queued_ns != ABSENT
    instances = CollectiveInstances(
        group=np.full(count, matched.group, dtype=np.int64),
        kind=matched.kind.astype(np.int64),
        members=known.sum(axis=1).astype(np.int64),
        rank=np.where(alone, members[last], ABSENT),
        row=row[each, last],
        step=matched.step,
        size_bytes=matched.size_bytes,
        arrival_ns=arrival_ns,
        end_ns=end_ns,
        late_ns=late_ns,
        behind_ns=behind_ns,
        released_ns=np.where(queued, queued_ns, released_ns),
        excess_ns=np.where(queued, 0, beyond["segment"]),
        compute_ns=beyond["compute_ns"],
        data_ns=beyond["data_ns"],
        operations=beyond["operations"],
        usual_operations=usual["operations"],
        differs=differs,
        detailed=several,
        released_by=np.full(count, ABSENT, dtype=np.int64),
    )
    return instances, waited_ns


def _last_passed_collective(run: Run, rank: Int64, row: Int64, free_ns: Int64) -> Int64:
    """Return the last collective, int64 [m], that released the peers but that the last rank passed without waiting.

    A rank that is always last never waits, so that its segment goes back further than its peers'. What it did before
    that collective must not be compared with them; -1 where there is none.

    rank: int64 [m], place of the last rank. row: int64 [m], of its collectives. free_ns: int64 [m], how much earlier it
    was released than any of its peers.
    """
    result = np.full(len(row), ABSENT, dtype=np.int64)
    free = np.flatnonzero(free_ns > 0)
    for member in np.unique(rank[free]).tolist():
        here = free[rank[free] == member]
        collectives = run.ranks[member].collectives
        order = np.argsort(collectives.start_ns, kind="stable")
        released_ns = collectives.released_ns[row[here]] + free_ns[here]
        place = np.searchsorted(collectives.start_ns[order], released_ns, side="right") - 1
        earlier = order[np.maximum(place, 0)]
        same_segment = collectives.released_ns[earlier] == collectives.released_ns[row[here]]
        result[here] = np.where((place >= 0) & (earlier != row[here]) & same_segment, earlier, ABSENT)
    return result


def _column_at(run: Run, rank: Int64, row: Int64, name: str) -> Int64:
    """Return the value of a column of a rank's collectives at each row, int64 [m]; 0 where the row is -1."""
    result = np.zeros(len(row), dtype=np.int64)
    known = np.flatnonzero(row != ABSENT)
    for member in np.unique(rank[known]).tolist():
        here = known[rank[known] == member]
        collectives = run.ranks[member].collectives
        values = collectives.start_ns - collectives.released_ns if name == "segment" else getattr(collectives, name)
        result[here] = values[row[here]]
    return result
