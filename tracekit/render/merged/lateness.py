"""Who waited for whom, and who came late, as stretches of time on a rank's page.

Comes in: a run and its arrivals. Goes out: `PeerWaits` and `Lateness` of one rank. Of collectives, what the report does
not count as waiting is no wait here either: that a rank left before the last one came, or what is within the errors of
clocks. Messages are waited for until they are there, their transfer included.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracekit.analysis.stragglers.arrivals import Arrivals
from tracekit.analysis.stragglers.collective_instances import CollectiveInstances
from tracekit.analysis.timeline.parts import WAITS
from tracekit.model.columnar import Columnar
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import Run

__all__ = ["Lateness", "PeerWaits", "grouped", "late_instances", "lateness_of", "message_waits_of", "waits_of"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PeerWaits(Columnar):
    """n times when a rank was in a collective whose last rank had not come, or had nothing to do before a message was
    over, on the run's clock; int64 [n] each. instance: the collective's number in the run, -1 of messages; step: as
    recorded, or -1. blamed_rank: whom it waited for. leads_to: the instance to which the wait made this rank come late,
    or -1. is_message: 0 or 1. role: uint8 [n], of the rank in the instance.
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
    """n times when a rank was late, from the arrival of the last but one to its own, on the run's clock; int64 [n]
    each. instance: what it came late to; step: as recorded, or -1. excess_ns, compute_ns, data_ns: how much more than
    its peers it took since its last release, computed, and loaded data.
    """

    start_ns: Int64
    end_ns: Int64
    instance: Int64
    step: Int64
    excess_ns: Int64
    compute_ns: Int64
    data_ns: Int64


def waits_of(run: Run, arrivals: Arrivals, place: int, role: npt.NDArray[np.uint8], late: Int64) -> PeerWaits:
    """Of the rank at this place. `role`: of it in each of its collectives; `late`: the instances it came last to."""
    instances, own = arrivals.instances, arrivals.instance_of[place]
    rows = np.flatnonzero(arrivals.waited_ns[place] > 0)
    rows = rows[instances.rank[own[rows]] != ABSENT]
    end_ns = instances.arrival_ns[own[rows]]
    return PeerWaits(
        start_ns=run.clocks[place].to_run(run.ranks[place].collectives.start_ns[rows]),
        end_ns=end_ns,
        instance=own[rows],
        step=instances.step[own[rows]],
        blamed_rank=np.array([run.ranks[k].rank for k in instances.rank[own[rows]].tolist()], dtype=np.int64),
        leads_to=_led_to(instances, own[rows], late),
        is_message=np.zeros(len(rows), dtype=np.int64),
        role=role[rows],
    )


def message_waits_of(run: Run, arrivals: Arrivals, place: int, number: Int64, late: Int64) -> PeerWaits:
    """Of the rank at this place, each from where what it waited for before was over. `number`: of each of its messages
    in the run, or -1; `late`: as above."""
    summary, clock = run.ranks[place], run.clocks[place]
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
    """int64 [n]: to which of the instances `late` a rank came late for having waited for `over`, int64 [n], or -1."""
    next_late = {
        int(instances.released_by[which]): int(which) for which in late if instances.released_by[which] != ABSENT
    }
    return np.array([next_late.get(which, ABSENT) for which in over.tolist()], dtype=np.int64)


def lateness_of(arrivals: Arrivals, late: Int64) -> Lateness:
    """Of a rank. `late`: the instances that it came last to."""
    instances = arrivals.instances
    return Lateness(
        start_ns=instances.arrival_ns[late] - instances.late_ns[late],
        end_ns=instances.arrival_ns[late],
        instance=late,
        step=instances.step[late],
        excess_ns=instances.excess_ns[late],
        compute_ns=instances.compute_ns[late],
        data_ns=instances.data_ns[late],
    )


def late_instances(arrivals: Arrivals) -> list[Int64]:
    """By place in the run, the instances to which the rank came last."""
    late = np.flatnonzero((arrivals.instances.rank != ABSENT) & (arrivals.instances.late_ns > 0))
    return grouped(late, arrivals.instances.rank[late], len(arrivals.waited_ns))


def grouped(values: Int64, group: Int64, count: int) -> list[Int64]:
    """`values`, int64 [n], of each of `count` groups, in their order; group: int64 [n]."""
    order = np.argsort(group, kind="stable")
    return np.split(values[order], np.searchsorted(group[order], np.arange(1, count)))
