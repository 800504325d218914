"""Who came last to each instance of a group's collectives, and by how much its work exceeded that of its peers.

`CollectiveInstances` has one instance a row, with flat columns over all groups. So a question about a run of a thousand
ranks is a handful of array operations.

Two things are compared. The segment is the time from the last release until the rank was ready: it tells by how much
the rank is late by itself. The program interval goes from one instance of the group to another, and
contains the segment: all ranks run the same program there. So a rank that launched more in it has more work, and one
whose operations took longer for the same is slow.

Where an instance is queued behind communication that was delayed before, its own delay is only the rest:

    rank 0  |gradients|gradients|      |==== bucket 0 ====|==== bucket 1 ====|
    rank 1  |   gradients  |   gradients  |== bucket 0 ===|==== bucket 1 ====|
                                          ^ bucket 0 is delayed by rank 1, and with it bucket 1

An instance begins when the last rank is ready and the stream is free. Without the last rank's lateness it had begun
when the others were ready, and the instance before it in the queue had ended without its own delay:

    begin(i) = max(last(i), free(i))
    late(i)  = begin(i) - max(second to last(i), free(i) - late(before i))
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.explain.communication.slow_messages import transfer_times
from tracekit.model.columnar import Columnar
from tracekit.model.communication import MatchedGroup
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.run import Run, clocks_are_comparable, largest_pair_error_ns
from tracekit.stats.connected_components import deepest_first
from tracekit.stats.uncertainty import majority_excluding, median_excluding

NEVER = np.iinfo(np.int64).min // 2
"""In times on the run's clock: absent."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CollectiveInstances(Columnar):
    """n instances of collectives, group by group, then the run's messages in their order.

    The last rank is the one on which the kernel or span begins last. Either it arrived last, or its stream or queue was
    the last to be free. The attributes from `queued` on describe its segment: the time from its last release until it
    was ready.

    Attributes:
        group: int64 [n], index into the run's groups, -1 for messages.
        kind: int64 [n], index into `KINDS`.
        members: int64 [n], how many ranks recorded it.
        rank: int64 [n], index in the run's ranks of the last rank, or -1 where several were last.
        last_arrival: int64 [n], index of the rank that was ready last, or -1 where the clocks cannot tell, and for
            messages.
        row: int64 [n], row of the last rank's `Collectives`, or `Messages`.
        step: int64 [n], as recorded, or -1.
        size_bytes: int64 [n], or -1.
        begin_ns: int64 [n], when the transfer began, on the run's clock.
        end_ns: int64 [n], the last end, on the run's clock.
        transfer_ns: int64 [n], how long the transfer took.
        late_ns: int64 [n], for how long only the last rank was missing (`lateness`); 0 where the clocks cannot tell the
            last two apart, and for messages, whose receivers may well be early.
        behind_ns: int64 [n], the same from the median of the others on; 0 likewise.
        waited_ns: int64 [n], for how long the ranks but the last waited for it, the median. They are not delayed by
            more.
        queued: bool [n], whether it was queued behind other communication on the last rank.
        released_ns: int64 [n], the last rank's last release, on that rank's clock, or -1. If the collective was queued,
            the end of the communication before.
        since_ns: int64 [n], from when on the segment is compared with its peers', on the last rank's clock: its
            release, or its arrival at a later instance that released its peers and that it passed without waiting.
        passed_row: int64 [n], row of that instance in the last rank's `Collectives`, or -1.
        excess_ns: int64 [n], by how much the segment is longer from then on than the median of its peers'; 0 if queued.
        data_ns: int64 [n], by how much longer than its peers' median the rank loaded data.
        compute_ns: int64 [n], by how much longer than its peers' median the rank's operations took in the interval of
            the program that contains the segment: from one instance of the group to another.
        operations: int64 [n], how many more than its peers' median the rank began in that interval.
        usual_operations: int64 [n], that median.
        differs: bool [n], whether the rank's work there was other than its peers'.
        detailed: bool [n], whether more than the excess is known.
        released_by: int64 [n], index of the instance that released the rank, or that it was queued behind, or -1.
        begins_with: int64 [n], index of the instance at `since_ns`, or -1.
    """

    group: Int64
    kind: Int64
    members: Int64
    rank: Int64
    last_arrival: Int64
    row: Int64
    step: Int64
    size_bytes: Int64
    begin_ns: Int64
    end_ns: Int64
    transfer_ns: Int64
    late_ns: Int64
    behind_ns: Int64
    waited_ns: Int64
    queued: Bool
    released_ns: Int64
    since_ns: Int64
    passed_row: Int64
    excess_ns: Int64
    data_ns: Int64
    compute_ns: Int64
    operations: Int64
    usual_operations: Int64
    differs: Bool
    detailed: Bool
    released_by: Int64
    begins_with: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupWaits:
    """How the k ranks of a group waited in its m instances; 0 within the uncertainty of the clocks.

    Attributes:
        early_ns: int64 [m, k], by how much each arrived before the last.
        spun_ns: int64 [m, k], by how much its kernel or span began before the last.
    """

    early_ns: Int64
    spun_ns: Int64


def group_instances(
    run: Run, matched: MatchedGroup, members: Int64
) -> tuple[CollectiveInstances, ArrivalOrder, GroupWaits]:
    """Return the m instances of a group of k ranks, the order of arrivals at them, and how the ranks waited in them.

    `late_ns`, `behind_ns`, `released_by` and `begins_with` depend on other groups too: `arrivals_of` fills them in.
    """
    of = GroupColumns(run=run, row=np.ascontiguousarray(matched.row.T), members=members)
    known, each, errors_ns = of.known, np.arange(matched.row.shape[1]), of.errors_ns()
    started_ns, ended_ns = of.column("start_ns", on_run=True), of.column("end_ns", on_run=True)
    last = np.argmax(started_ns, axis=1)
    begin_ns = started_ns[each, last]
    # In a gather or a broadcast a rank may leave before the last one comes. It was not held up.
    held = known & (ended_ns + errors_ns + errors_ns.max(initial=0) >= begin_ns[:, None])
    several = held.sum(axis=1) > 1
    spun_ns = np.where(held, begin_ns[:, None] - started_ns, 0)
    alone = several & ((held & (spun_ns > 0)).sum(axis=1) == held.sum(axis=1) - 1)
    spun_ns[spun_ns <= errors_ns + errors_ns[last][:, None]] = 0
    order, last_arrival, early_ns = _arrival_order(of, held)
    beyond = compare_with_peers(of, last)
    # What was queued began when the communication before it ended, whatever its rank did.
    is_behind = order.free_ns > order.last_ns
    rank = np.where(is_behind, order.busy, np.where(alone, members[last], ABSENT))
    row = np.where(is_behind, order.busy_row, of.row[each, last])
    queued_ns = column_at(run, np.where(is_behind, order.busy, members[last]), row, "queued_ns")
    queued = queued_ns != ABSENT
    none = np.full(len(each), ABSENT, dtype=np.int64)
    instances = CollectiveInstances(
        group=np.full(len(each), matched.group, dtype=np.int64),
        kind=matched.kind.astype(np.int64),
        members=known.sum(axis=1).astype(np.int64),
        rank=rank,
        last_arrival=np.where(last_arrival == ABSENT, ABSENT, members[last_arrival]),
        row=row,
        step=matched.step,
        size_bytes=matched.size_bytes,
        begin_ns=begin_ns,
        end_ns=ended_ns.max(axis=1),
        transfer_ns=_transfer_ns(of, matched, started_ns, ended_ns),
        late_ns=np.zeros(len(each), dtype=np.int64),
        behind_ns=np.zeros(len(each), dtype=np.int64),
        waited_ns=_waited_ns(of, last, held),
        queued=queued,
        released_ns=np.where(queued, queued_ns, beyond.released_ns),
        since_ns=np.where(queued, queued_ns, beyond.since_ns),
        passed_row=np.where(queued, ABSENT, beyond.passed_row),
        excess_ns=np.where(several & ~queued, beyond.excess_ns, 0),
        data_ns=np.where(several, beyond.data_ns, 0),
        compute_ns=np.where(several, beyond.compute_ns, 0),
        operations=np.where(several, beyond.operations, 0),
        usual_operations=np.where(several, beyond.usual_operations, 0),
        differs=several & beyond.differs,
        detailed=several,
        released_by=none,
        begins_with=none.copy(),
    )
    return instances, order, GroupWaits(early_ns=early_ns, spun_ns=spun_ns)


def _arrival_order(of: GroupColumns, held: Bool) -> tuple[ArrivalOrder, Int64, Int64]:
    """Return the order of arrivals; which of the k ranks was ready last, int64 [m], or -1 where the clocks cannot tell;
    and by how much each was ready before it, int64 [m, k]; 0 within the uncertainty of the clocks.

    held: bool [m, k], the ranks that cannot leave before the last has come.
    """
    arrived_ns, errors_ns, each = of.column("ready_ns", on_run=True), of.errors_ns(), np.arange(len(held))
    last, several = np.argmax(arrived_ns, axis=1), held.sum(axis=1) > 1
    last_ns, error_ns = arrived_ns[each, last], errors_ns[last] + errors_ns.max(initial=0)
    early_ns = np.where(held, last_ns[:, None] - arrived_ns, 0)
    others_ns = np.where(held, arrived_ns, NEVER)
    others_ns[each, last] = NEVER
    second_ns = np.where(several, others_ns.max(axis=1), last_ns)
    early_ns[early_ns <= errors_ns + errors_ns[last][:, None]] = 0
    free_ns = of.column("queued_ns", on_run=True)
    free_ns[free_ns <= arrived_ns] = NEVER  # spans of hosts are ready when their queue is free
    busy = np.argmax(free_ns, axis=1)
    free_ns = free_ns[each, busy]
    is_busy = free_ns > NEVER
    order = ArrivalOrder(
        last_ns=last_ns,
        second_ns=second_ns,
        median_ns=np.where(several, median_excluding(arrived_ns, held, last), last_ns),
        free_ns=free_ns,
        busy=np.where(is_busy, of.members[busy], ABSENT),
        busy_row=np.where(is_busy, of.row[each, busy], ABSENT),
        error_ns=error_ns,
    )
    return order, np.where(last_ns - second_ns > error_ns, last, ABSENT), early_ns


def _waited_ns(of: GroupColumns, last: Int64, held: Bool) -> Int64:
    """Return for how long the ranks but the last waited for each, medians, int64 [m]. held: bool [m, k], who counts."""
    held = held.copy()
    held[np.arange(len(last)), last] = True
    return median_excluding(of.column("waited_ns"), held, last)


def _transfer_ns(of: GroupColumns, matched: MatchedGroup, started_ns: Int64, ended_ns: Int64) -> Int64:
    """Return how long the transfers took, int64 [m]. Times on the run's clock, int64 [m, k]."""
    clocks = [of.run.clocks[member] for member in of.members.tolist()]
    error_ns = None
    if clocks_are_comparable([of.run.ranks[member] for member in of.members.tolist()], clocks):
        error_ns = largest_pair_error_ns(clocks)
    took_ns = of.column("end_ns") - of.column("start_ns")
    return transfer_times(started_ns.T, ended_ns.T, took_ns.T, matched.kind, of.known.T, error_ns)


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
        compute_ns: by how much longer its operations took in the interval.
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
    """Compare the last rank of each of m instances with the others. last: int64 [m], its index among the members."""
    known, each = of.known, np.arange(len(last))
    rank, row = of.members[last], of.row[each, last]
    of_all_ns, arrived_ns = of.column("released_ns"), of.column("ready_ns")
    released_ns, ready_ns = of_all_ns[each, last], arrived_ns[each, last]
    passed_row = _last_passed(of.run, rank, row, _released_before_ns(of, last))
    passed = passed_row != ABSENT
    since_ns = np.where(passed, column_at(of.run, rank, passed_row, "ready_ns"), released_ns)
    loaded_ns = of.column("data_ns")
    loaded_before_ns = np.where(passed, column_at(of.run, rank, passed_row, "data_ns"), 0)
    others = known.sum(axis=1) > 1
    interval = _program_intervals(of, last, since_ns)
    # A peer that passed the collective with which the segment begins, and did not wait, has been at work since then.
    passed_ns = np.where((interval.begin >= 0)[:, None] & known[interval.begin], arrived_ns[interval.begin], NEVER)
    segment_ns = arrived_ns - np.maximum(of_all_ns, passed_ns)
    excess_ns = ready_ns - since_ns - median_excluding(segment_ns, known, last)
    data_ns = loaded_ns[each, last] - loaded_before_ns - median_excluding(loaded_ns, known, last)
    took_ns, operations, work = map(interval.of_column, ("work_ns", "operations", "work"))
    usual = median_excluding(operations, interval.known, last)
    alike = interval.known.sum(axis=1) > 1
    return PeerComparison(
        released_ns=released_ns,
        passed_row=passed_row,
        since_ns=since_ns,
        excess_ns=np.where(others, excess_ns, 0),
        data_ns=np.where(others, data_ns, 0),
        compute_ns=np.where(alike, took_ns[each, last] - median_excluding(took_ns, interval.known, last), 0),
        operations=np.where(alike, operations[each, last] - usual, 0),
        usual_operations=usual,
        differs=alike & (work[each, last] != majority_excluding(work, interval.known, last)),
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

    rank: int64 [m], index of the last rank. row: int64 [m], of its collectives. before_peers_ns: int64 [m], how much
    earlier it was released than any of its peers.
    """
    result = np.full(len(row), ABSENT, dtype=np.int64)
    early = np.flatnonzero(before_peers_ns > 0)
    for member in np.unique(rank[early]).tolist():
        here = early[rank[early] == member]
        collectives = run.ranks[member].collectives
        order = np.argsort(collectives.ready_ns, kind="stable")
        released_ns = collectives.released_ns[row[here]] + before_peers_ns[here]
        index = np.searchsorted(collectives.ready_ns[order], released_ns, side="right") - 1
        earlier = order[np.maximum(index, 0)]
        same_segment = collectives.released_ns[earlier] == collectives.released_ns[row[here]]
        result[here] = np.where((index >= 0) & (earlier != row[here]) & same_segment, earlier, ABSENT)
    return result


@dataclass(frozen=True, kw_only=True, eq=False)
class _ProgramIntervals:
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


def _program_intervals(of: GroupColumns, last: Int64, since_ns: Int64) -> _ProgramIntervals:
    """Return the interval before each instance, from the last one of the group that had ended at `since_ns` (int64 [m],
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
    return _ProgramIntervals(of=of, begin=begin, known=known)


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupColumns:
    """The m instances of a group with k ranks, as arrays [m, k]: an instance's ranks lie together in memory, which
    makes sorting them faster.

    Attributes:
        row: int64 [m, k], of each rank's `Collectives`, or -1.
        members: int64 [k], indexes in the run's ranks.
    """

    run: Run
    row: Int64
    members: Int64

    @property
    def known(self) -> Bool:
        return self.row >= 0

    def errors_ns(self) -> Int64:
        """Return by how much each rank's clock may be off, int64 [k]; 0 if that is not known."""
        return np.array([self.run.clocks[member].error_ns or 0 for member in self.members], dtype=np.int64)

    def column(self, name: str, *, on_run: bool = False) -> Int64:
        """Return a column of all ranks, int64 [m, k]. `on_run`: times on the run's clock, NEVER if absent."""
        rows = self.row.T
        result = np.full(rows.shape, NEVER if on_run else 0, dtype=np.int64)
        complete = bool((rows >= 0).all())
        for of_rank, of_row, member in zip(result, rows, self.members.tolist(), strict=True):
            here = slice(None) if complete else of_row >= 0
            # Taken first: a rank's collectives of other groups cost nothing.
            values = np.take(getattr(self.run.ranks[member].collectives, name), of_row[here])
            if on_run:
                values = np.where(values == ABSENT, NEVER, self.run.clocks[member].to_run(values))
            of_rank[here] = values
        return np.ascontiguousarray(result.T)


def column_at(run: Run, rank: Int64, row: Int64, name: str) -> Int64:
    """Return a column of each rank's collectives at its row, int64 [m]; -1 where the row is -1.

    rank: int64 [m], indexes in the run's ranks. row: int64 [m].
    """
    result = np.full(len(row), ABSENT, dtype=np.int64)
    known = np.flatnonzero(row != ABSENT)
    for member in np.unique(rank[known]).tolist():
        here = known[rank[known] == member]
        result[here] = getattr(run.ranks[member].collectives, name)[row[here]]
    return result


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrivalOrder(Columnar):
    """When the ranks of n instances were ready and their streams free; int64 [n] each, times on the run's clock.

    Attributes:
        last_ns: when the last rank was ready.
        second_ns: when the second to last was ready; equal to `last_ns` if there is none.
        median_ns: the median of the others.
        free_ns: when the last stream got free of the communication before; far in the past if none was busy.
        busy: index in the run's ranks of the one with that stream, or -1.
        busy_row: of that rank's `Collectives`, or -1.
        error_ns: what the clocks cannot tell apart.
    """

    last_ns: Int64
    second_ns: Int64
    median_ns: Int64
    free_ns: Int64
    busy: Int64
    busy_row: Int64
    error_ns: Int64


def lateness(order: ArrivalOrder, before: Int64) -> tuple[Int64, Int64]:
    """Return two int64 [n] in ns: how much earlier each instance would begin if its last rank had been ready with the
    second to last one, and with the median of the others. Both are 0 where the clocks cannot tell.

    before: int64 [n], the instance that each was queued behind, or -1.
    """
    begin_ns = np.maximum(order.last_ns, order.free_ns)
    late_ns, behind_ns = (
        _beyond(begin_ns - np.maximum(other_ns, order.free_ns), order.error_ns)
        for other_ns in (order.second_ns, order.median_ns)
    )
    for rows in reversed(deepest_first(before)):
        free_ns = order.free_ns[rows] - late_ns[before[rows]]
        for result_ns, other_ns in ((behind_ns, order.median_ns), (late_ns, order.second_ns)):
            apart_ns = begin_ns[rows] - np.maximum(other_ns[rows], free_ns)
            result_ns[rows] = _beyond(apart_ns, order.error_ns[rows])
    return late_ns, behind_ns


def _beyond(apart_ns: Int64, error_ns: Int64) -> Int64:
    return np.where(apart_ns > error_ns, np.maximum(apart_ns, 0), 0)
