"""Who came last to each instance of a collective, how late, and what had held that rank up before.

    rank 0  compute |   wait    |        The last rank's lateness is counted from the last but one.
    rank 1  compute...........  |
    rank 2  compute...|  wait   |
                       lateness

A segment is the time from a rank's last release to its arrival. By how much the last rank's segment is longer than the
median of its peers', the rank itself has caused. The rest is due to the instance that released it, and so to the last
rank of that instance. Where two ranks arrive last at the same time, neither is late, and neither held up the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.stragglers.collective_instances import CollectiveInstances, group_instances
from tracekit.analysis.stragglers.message_instances import message_arrivals
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import Run

__all__ = ["Arrivals", "arrivals_of"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrivals:
    """The instances of a run, and how its r ranks waited in them.

    Attributes:
        instances: collectives, then messages.
        collectives: how many of the instances are collectives.
        arrivals: int64 [r], in how many collectives of the counted steps each rank took part.
        wait_ns: int64 [r], how long each rank waited in them for the last rank.
        instance_of: of each rank the instance of each of its collectives, int64, or -1.
        waited_ns: of each rank how long it waited in each of its collectives, int64.
    """

    instances: CollectiveInstances
    collectives: int
    arrivals: Int64
    wait_ns: Int64
    instance_of: tuple[Int64, ...]
    waited_ns: tuple[Int64, ...]


def arrivals_of(run: Run, steps: frozenset[int]) -> Arrivals:
    """Return all matched instances; sums by rank are over `steps`."""
    place = {summary.rank: i for i, summary in enumerate(run.ranks)}
    counted = np.array(sorted(steps), dtype=np.int64)
    arrivals, wait_ns = np.zeros(len(run.ranks), dtype=np.int64), np.zeros(len(run.ranks), dtype=np.int64)
    instance_of = [np.full(len(s.collectives), ABSENT, dtype=np.int64) for s in run.ranks]
    waits_ns = [np.zeros(len(s.collectives), dtype=np.int64) for s in run.ranks]
    parts, total = [], 0
    for matched in run.collectives:
        members = np.array([place[rank] for rank in matched.ranks.tolist()], dtype=np.int64)
        part, waited_ns = group_instances(run, matched, members)
        parts.append(part)
        within = np.isin(matched.step, counted)
        arrivals[members] += (matched.row[:, within] >= 0).sum(axis=1)
        wait_ns[members] += waited_ns[within].sum(axis=0)
        for column, member in enumerate(members.tolist()):
            known = np.flatnonzero(matched.row[column] >= 0)
            instance_of[member][matched.row[column][known]] = total + known
            waits_ns[member][matched.row[column][known]] = waited_ns[known, column]
        total += matched.row.shape[1]
    parts.append(_message_instances(run, place))
    instances = CollectiveInstances.concatenate(parts)
    instances.released_by[:] = _releasing_instances(run, instances, total, instance_of)
    return Arrivals(
        instances=instances,
        collectives=total,
        arrivals=arrivals,
        wait_ns=wait_ns,
        instance_of=tuple(instance_of),
        waited_ns=tuple(waits_ns),
    )


def _message_instances(run: Run, place: dict[int, int]) -> CollectiveInstances:
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
        released_ns=found.released_ns,
        excess_ns=found.excess_ns,
        compute_ns=none,
        data_ns=none,
        operations=none,
        usual_operations=none,
        differs=np.zeros(count, dtype=np.bool_),
        detailed=np.zeros(count, dtype=np.bool_),
        released_by=np.full(count, ABSENT, dtype=np.int64),
    )


def _releasing_instances(
    run: Run, instances: CollectiveInstances, collectives: int, instance_of: Sequence[Int64]
) -> Int64:
    """Return the instance that ended on the last rank when its segment began, int64 [n], or -1.

    It must have had its last arrival earlier, on the run's clock: otherwise instances might release each other in a
    circle where clocks are off by more than their error.
    """
    result = np.full(len(instances), ABSENT, dtype=np.int64)
    order = np.argsort(instances.rank, kind="stable")
    bounds = np.searchsorted(instances.rank[order], np.arange(len(run.ranks) + 1))
    order_of_receiver = np.argsort(run.messages.destination, kind="stable")
    receivers = run.messages.destination[order_of_receiver]
    for member, summary in enumerate(run.ranks):
        last_here = order[bounds[member] : bounds[member + 1]]
        last_here = last_here[instances.released_ns[last_here] != ABSENT]
        if not len(last_here):
            continue
        first, stop = np.searchsorted(receivers, (summary.rank, summary.rank + 1))
        received = order_of_receiver[first:stop]
        ends_ns = np.concatenate((summary.collectives.end_ns, summary.messages.end_ns[run.messages.recv[received]]))
        which = np.concatenate((instance_of[member], collectives + received))
        by_end = np.argsort(ends_ns, kind="stable")
        ends_ns, which = ends_ns[by_end], which[by_end]
        if not len(ends_ns):
            continue
        released_ns = instances.released_ns[last_here]
        found = np.minimum(np.searchsorted(ends_ns, released_ns, side="left"), len(ends_ns) - 1)
        result[last_here] = np.where(ends_ns[found] == released_ns, which[found], ABSENT)
    known = np.flatnonzero(result != ABSENT)
    later = instances.arrival_ns[result[known]] >= instances.arrival_ns[known]
    result[known[later]] = ABSENT
    return result
