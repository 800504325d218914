"""Who came last to each instance of a collective, how late, and what had held that rank up before.

`CollectiveInstances` has a row an instance: flat columns over all groups, so that a question about a run of a thousand
ranks is a handful of array operations.

    rank 0  compute |   wait    |        The last rank's lateness is to the last but one. Its own part of it is the
    rank 1  compute...........  |        excess of its segment, from its last release to its arrival, over the median
    rank 2  compute...|  wait   |        of its peers'. The rest it owes to the instance that released it, `before`, and
                       lateness          so to the rank which that one had waited for.

Where two ranks arrive last at the same time nobody is late, and nobody can be told to have held up the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.stats.leave_one_out import majority_excluding, median_excluding
from tracekit.analysis.stragglers.message_instances import message_arrivals
from tracekit.model.collectives import MatchedGroup
from tracekit.model.columnar import Columnar
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.run import Run

__all__ = ["Arrivals", "CollectiveInstances", "arrivals_of"]

_NEVER, _LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True, eq=False)
class CollectiveInstances(Columnar):
    """n instances of collectives, group by group, then the run's messages in their order; int64 [n] unless said.

    group: index into the run's groups, -1 of messages. kind: index into `KINDS`. members: how many ranks know it. rank:
    place in the run's ranks of the last to arrive, or -1 where several did; row: of its `Collectives`, or `Messages`.
    step: as recorded, or -1. size_bytes: or -1. arrival_ns: of the last, end_ns: the last end, on the run's clock.
    late_ns: between the two last arrivals, behind_ns: between the median of the others' and the last; 0 where the
    clocks cannot tell, and of messages, whose receivers may well be early.

    Of the last rank's segment, or of nothing where it came late because its collective had to let another pass:
    since_ns, its release before, on its own clock, or -1; excess_ns, compute_ns, data_ns,
    operations: how much more than the median of its peers it took, computed, loaded data, and began; usual_operations:
    that median; differs, bool [n]: whether its work was other than its peers'. detailed: bool [n], whether more than
    the excess is known. before: index of the instance that released it, or -1.
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
    since_ns: Int64
    excess_ns: Int64
    compute_ns: Int64
    data_ns: Int64
    operations: Int64
    usual_operations: Int64
    differs: Bool
    detailed: Bool
    before: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrivals:
    """`instances`, of which the first `collectives` are no messages. Of each of the run's r ranks: arrivals, in how
    many collectives of the counted steps it took part, and wait_ns, how long it waited in them for the last: int64 [r];
    and of each of its collectives: instance_of, int64, the instance, or -1; waited_ns, int64, how long it waited in it.
    """

    instances: CollectiveInstances
    collectives: int
    arrivals: Int64
    wait_ns: Int64
    instance_of: tuple[Int64, ...]
    waited_ns: tuple[Int64, ...]


def arrivals_of(run: Run, steps: frozenset[int]) -> Arrivals:
    """All matched instances; what is summed by rank is over `steps`."""
    place = {summary.rank: i for i, summary in enumerate(run.ranks)}
    counted = np.array(sorted(steps), dtype=np.int64)
    arrivals, wait_ns = np.zeros(len(run.ranks), dtype=np.int64), np.zeros(len(run.ranks), dtype=np.int64)
    instance_of = [np.full(len(s.collectives), ABSENT, dtype=np.int64) for s in run.ranks]
    own_waits_ns = [np.zeros(len(s.collectives), dtype=np.int64) for s in run.ranks]
    parts, total = [], 0
    for matched in run.collectives:
        members = np.array([place[rank] for rank in matched.ranks.tolist()], dtype=np.int64)
        part, waited_ns = _of_group(run, matched, members)
        parts.append(part)
        within = np.isin(matched.step, counted)
        arrivals[members] += (matched.row[:, within] >= 0).sum(axis=1)
        wait_ns[members] += waited_ns[within].sum(axis=0)
        for column, member in enumerate(members.tolist()):
            known = np.flatnonzero(matched.row[column] >= 0)
            instance_of[member][matched.row[column][known]] = total + known
            own_waits_ns[member][matched.row[column][known]] = waited_ns[known, column]
        total += matched.row.shape[1]
    parts.append(_of_messages(run, place))
    instances = CollectiveInstances.concatenate(parts)
    instances.before[:] = _before(run, instances, total, instance_of)
    return Arrivals(
        instances=instances,
        collectives=total,
        arrivals=arrivals,
        wait_ns=wait_ns,
        instance_of=tuple(instance_of),
        waited_ns=tuple(own_waits_ns),
    )


def _of_group(run: Run, matched: MatchedGroup, members: Int64) -> tuple[CollectiveInstances, Int64]:
    """Its m instances, and the wait of each of its k ranks: int64 [m, k]. Arrays are [m, k]: a row's ranks lie together
    in memory, which is what sorting them wants."""
    row = np.ascontiguousarray(matched.row.T)
    count, known = len(row), row >= 0
    complete = bool(known.all())
    each = np.arange(count)

    def gathered(name: str, *, on_run: bool = False) -> Int64:
        """A column of all ranks; `on_run`: times on the run's clock."""
        result = np.full(matched.row.shape, _NEVER if on_run else 0, dtype=np.int64)
        for own, rows, member in zip(result, matched.row, members.tolist(), strict=True):
            values = getattr(run.ranks[member].collectives, name)
            if on_run:
                values = run.clocks[member].to_run(values)
            if complete:
                np.take(values, rows, out=own)
            else:
                own[rows >= 0] = values[rows[rows >= 0]]
        return np.ascontiguousarray(result.T)

    arrived_ns = gathered("start_ns", on_run=True)
    ended_ns = gathered("end_ns", on_run=True)
    end_ns = ended_ns.max(axis=1)
    last = np.argmax(arrived_ns, axis=1)
    arrival_ns = arrived_ns[each, last]
    errors_ns = np.array([run.clocks[member].error_ns or 0 for member in members], dtype=np.int64)
    # Who sends to one rank, or is sent to by one, may leave before the last comes, and was not held up by it.
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
    since_ns = gathered("released_ns")
    own_ns = gathered("start_ns") - since_ns
    since_ns = since_ns[each, last]
    begun_ns = gathered("released_ns", on_run=True)
    begun_ns[~known] = begun_ns[each, last] = _LATEST
    free_ns = np.where(several, own_ns[each, last] - (arrival_ns - begun_ns.min(axis=1)), 0)
    del begun_ns
    earlier_row = _passed(run, members[last], row[each, last], free_ns)
    beyond, usual = {}, {}
    for name in ("own", "compute_ns", "data_ns", "operations"):
        values = own_ns if name == "own" else np.maximum(gathered(name), 0)
        usual[name] = median_excluding(values, known, last)
        done = values[each, last] - _before_that(run, members[last], earlier_row, name)
        beyond[name] = np.where(several, done - usual[name], 0)
    work = gathered("work")
    done = work[each, last] - _before_that(run, members[last], earlier_row, "work")
    differs = several & (done != majority_excluding(work, known, last))
    queued_ns = gathered("queued_ns")[each, last]
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
        since_ns=np.where(queued, queued_ns, since_ns),
        excess_ns=np.where(queued, 0, beyond["own"]),
        compute_ns=beyond["compute_ns"],
        data_ns=beyond["data_ns"],
        operations=beyond["operations"],
        usual_operations=usual["operations"],
        differs=differs,
        detailed=several,
        before=np.full(count, ABSENT, dtype=np.int64),
    )
    return instances, waited_ns


def _passed(run: Run, rank: Int64, row: Int64, free_ns: Int64) -> Int64:
    """int64 [m]: the collective that a rank (place: int64 [m]) passed without having to wait, its peers' last release,
    or -1. Of a rank that is always last, all that it did since it was last held would be compared with what the others
    did since they were last held by it. `free_ns`: how much earlier it was released than any of them; row: int64 [m].
    """
    result = np.full(len(row), ABSENT, dtype=np.int64)
    free = np.flatnonzero(free_ns > 0)
    for member in np.unique(rank[free]).tolist():
        here = free[rank[free] == member]
        own = run.ranks[member].collectives
        order = np.argsort(own.start_ns, kind="stable")
        released_ns = own.released_ns[row[here]] + free_ns[here]
        place = np.searchsorted(own.start_ns[order], released_ns, side="right") - 1
        found = order[np.maximum(place, 0)]
        same = (place >= 0) & (found != row[here]) & (own.released_ns[found] == own.released_ns[row[here]])
        result[here] = np.where(same, found, ABSENT)
    return result


def _before_that(run: Run, rank: Int64, row: Int64, name: str) -> Int64:
    """int64 [m]: what stands in a column of a rank's collectives at each row, 0 where the row is -1."""
    result = np.zeros(len(row), dtype=np.int64)
    known = np.flatnonzero(row != ABSENT)
    for member in np.unique(rank[known]).tolist():
        here = known[rank[known] == member]
        own = run.ranks[member].collectives
        values = own.start_ns - own.released_ns if name == "own" else getattr(own, name)
        result[here] = values[row[here]]
    return result


def _of_messages(run: Run, place: dict[int, int]) -> CollectiveInstances:
    found = message_arrivals(run, place)
    count = len(found.rank)
    none = np.zeros(count, dtype=np.int64)
    return CollectiveInstances(
        group=np.full(count, ABSENT, dtype=np.int64),
        kind=np.full(count, KINDS.index("send"), dtype=np.int64),
        members=np.full(count, 2, dtype=np.int64),
        rank=found.rank,
        row=found.row,
        step=run.messages.step,
        size_bytes=found.size_bytes,
        arrival_ns=found.arrival_ns,
        end_ns=found.end_ns,
        late_ns=none,
        behind_ns=none,
        since_ns=found.since_ns,
        excess_ns=found.excess_ns,
        compute_ns=none,
        data_ns=none,
        operations=none,
        usual_operations=none,
        differs=np.zeros(count, dtype=np.bool_),
        detailed=np.zeros(count, dtype=np.bool_),
        before=np.full(count, ABSENT, dtype=np.int64),
    )


def _before(run: Run, instances: CollectiveInstances, collectives: int, instance_of: Sequence[Int64]) -> Int64:
    """int64 [n]: the instance that ended on the last rank when its segment began; only one that, on the run's clock,
    its own last rank had reached earlier: clocks that differ by more than their error must not close a circle."""
    result = np.full(len(instances), ABSENT, dtype=np.int64)
    order = np.argsort(instances.rank, kind="stable")
    bounds = np.searchsorted(instances.rank[order], np.arange(len(run.ranks) + 1))
    order_of_receiver = np.argsort(run.messages.destination, kind="stable")
    receivers = run.messages.destination[order_of_receiver]
    for member, summary in enumerate(run.ranks):
        own = order[bounds[member] : bounds[member + 1]]
        own = own[instances.since_ns[own] != ABSENT]
        if not len(own):
            continue
        first, stop = np.searchsorted(receivers, (summary.rank, summary.rank + 1))
        received = order_of_receiver[first:stop]
        ends_ns = np.concatenate((summary.collectives.end_ns, summary.messages.end_ns[run.messages.recv[received]]))
        which = np.concatenate((instance_of[member], collectives + received))
        by_end = np.argsort(ends_ns, kind="stable")
        ends_ns, which = ends_ns[by_end], which[by_end]
        if not len(ends_ns):
            continue
        found = np.minimum(np.searchsorted(ends_ns, instances.since_ns[own], side="left"), len(ends_ns) - 1)
        result[own] = np.where(ends_ns[found] == instances.since_ns[own], which[found], ABSENT)
    there = np.flatnonzero(result != ABSENT)
    later = instances.arrival_ns[result[there]] >= instances.arrival_ns[there]
    result[there[later]] = ABSENT
    return result
