"""When a rank waited for another one, and when it was late itself.

Waits in collectives are those that the report counts. If a rank left a collective before the last one came, or if the
difference is within the error of the clocks, it has no wait. A wait for a message lasts until the message is there, so
it includes the transfer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracekit.explain.stragglers.arrivals import Arrivals
from tracekit.explain.stragglers.collective_instances import CollectiveInstances
from tracekit.model.columnar import Columnar
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import Run
from tracekit.rank.recorded_steps import WAITS


@dataclass(frozen=True, kw_only=True, eq=False)
class PeerWaits(Columnar):
    """n waits of one rank: in a collective until its last rank came, or for a message. int64 [n] each.

    Attributes:
        start_ns: Start on the run's clock.
        end_ns: End on the run's clock.
        instance: Number of the collective in the run; -1 for messages.
        step: Step that was recorded, or -1.
        blamed_rank: The rank that it waited for.
        leads_to: The instance that this rank came late to because of the wait, or -1.
        is_message: 1 for a message, 0 for a collective.
        role: Role of the rank in the instance, index into `ROLES`, uint8 [n].
    """

    start_ns: Int64
    end_ns: Int64
    instance: Int64
    step: Int64
    blamed_rank: Int64
    leads_to: Int64
    is_message: Int64
    role: npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, eq=False)
class Lateness(Columnar):
    """n times when one rank was late to a collective; int64 [n] each.

    Attributes:
        start_ns: Arrival of the last rank but one, on the run's clock.
        end_ns: Arrival of this rank, on the run's clock.
        instance: Number of the collective in the run.
        step: Step that was recorded, or -1.
        excess_ns: How much more time than its peers it took since it was last released.
        compute_ns: How much more of that time it computed than its peers.
        data_ns: How much more of that time it loaded data than its peers.
    """

    start_ns: Int64
    end_ns: Int64
    instance: Int64
    step: Int64
    excess_ns: Int64
    compute_ns: Int64
    data_ns: Int64


def waits_of(run: Run, arrivals: Arrivals, rank_index: int, role: npt.NDArray[np.uint8], late: Int64) -> PeerWaits:
    """Return the waits in collectives of the rank with this index in the run.

    role: role of the rank in each of its collectives. late: the instances that it came last to.
    """
    instances = arrivals.instances
    rows = np.flatnonzero(arrivals.waited_ns[rank_index] > 0)
    rows = rows[instances.rank[arrivals.instance_of[rank_index][rows]] != ABSENT]
    instance = arrivals.instance_of[rank_index][rows]
    return PeerWaits(
        start_ns=run.clocks[rank_index].to_run(run.ranks[rank_index].collectives.start_ns[rows]),
        end_ns=instances.begin_ns[instance],
        instance=instance,
        step=instances.step[instance],
        blamed_rank=np.array([run.ranks[k].rank for k in instances.rank[instance].tolist()], dtype=np.int64),
        leads_to=_led_to(instances, instance, late),
        is_message=np.zeros(len(rows), dtype=np.int64),
        role=role[rows],
    )


def message_waits_of(run: Run, arrivals: Arrivals, rank_index: int, number: Int64, late: Int64) -> PeerWaits:
    """Return the waits for messages of the rank with this index in the run.

    A wait starts when the rank had nothing else to do and what it waited for before was over. number: number in the run
    of each of the rank's messages, or -1. late: the instances that it came last to.
    """
    summary, clock = run.ranks[rank_index], run.clocks[rank_index]
    messages, waits = summary.messages, summary[WAITS]
    ends_ns = np.unique(np.concatenate((summary.collectives.end_ns, messages.end_ns)))
    rows = np.flatnonzero((messages.end_ns != ABSENT) & (messages.peer != ABSENT))
    wait = np.searchsorted(waits.since_ns, messages.end_ns[rows], side="left") - 1
    awaited = wait >= 0
    awaited[awaited] = messages.end_ns[rows[awaited]] <= waits.until_ns[wait[awaited]]
    rows, wait = rows[awaited], wait[awaited]
    before = np.searchsorted(ends_ns, messages.end_ns[rows], side="left") - 1
    since_ns = waits.since_ns[wait]
    since_ns = np.where(before >= 0, np.maximum(since_ns, ends_ns[np.maximum(before, 0)]), since_ns)
    instance = np.where(number[rows] == ABSENT, ABSENT, arrivals.collectives + number[rows])
    return PeerWaits(
        start_ns=clock.to_run(since_ns),
        end_ns=clock.to_run(messages.end_ns[rows]),
        instance=np.full(len(rows), ABSENT, dtype=np.int64),
        step=messages.step[rows],
        blamed_rank=messages.peer[rows].astype(np.int64),
        leads_to=_led_to(arrivals.instances, instance, late),
        is_message=np.ones(len(rows), dtype=np.int64),
        role=np.zeros(len(rows), dtype=np.uint8),
    )


def _led_to(instances: CollectiveInstances, over: Int64, late: Int64) -> Int64:
    """Return which of the instances `late` a rank came late to because it had waited for `over`, or -1; int64 [n]."""
    released_by = instances.released_by
    next_late = {int(released_by[each]): int(each) for each in late if released_by[each] != ABSENT}
    return np.array([next_late.get(each, ABSENT) for each in over.tolist()], dtype=np.int64)


def lateness_of(arrivals: Arrivals, late: Int64) -> Lateness:
    """Return when a rank was late. `late`: the instances that it came last to."""
    instances = arrivals.instances
    return Lateness(
        start_ns=instances.begin_ns[late] - instances.late_ns[late],
        end_ns=instances.begin_ns[late],
        instance=late,
        step=instances.step[late],
        excess_ns=instances.excess_ns[late],
        compute_ns=instances.compute_ns[late],
        data_ns=instances.data_ns[late],
    )


def late_instances(arrivals: Arrivals) -> list[Int64]:
    """Return for each rank of the run the instances to which the rank came last."""
    late = np.flatnonzero((arrivals.instances.rank != ABSENT) & (arrivals.instances.late_ns > 0))
    return grouped(late, arrivals.instances.rank[late], len(arrivals.waited_ns))


def grouped(values: Int64, group: Int64, count: int) -> list[Int64]:
    """Return the `values`, int64 [n], of each of `count` groups, in their order. group: int64 [n], 0 to count - 1."""
    order = np.argsort(group, kind="stable")
    return np.split(values[order], np.searchsorted(group[order], np.arange(1, count)))
