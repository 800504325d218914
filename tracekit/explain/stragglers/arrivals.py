"""Who came last to each collective and message, how late, and what had held that rank up before.

    rank 0  compute |   wait    |        The last rank's lateness is counted from the last but one.
    rank 1  compute...........  |
    rank 2  compute...|  wait   |
                       lateness

A segment is the time from a rank's last release to its arrival. By how much the last rank's segment is longer than the
median of its peers', the rank itself has caused. The rest is due to the instance that released it, and so to the last
rank of that instance. Where two ranks arrive last at the same time, neither is late, and neither held up the others.

A message is an instance of two ranks, the sender and the receiver. A receiver comes to it when it waits for it. It may
have posted the receive long before. What a rank did before it sent is compared with its peers. They share a group with
it, and send and receive the same sizes in the same order, such as the same stage in other replicas of a pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.explain.stragglers.collective_instances import (
    ArrivalOrder,
    CollectiveInstances,
    column_at,
    group_instances,
    lateness,
)
from tracekit.job.message_times import MessageTimes, message_sizes, message_transfers
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.run import ClockModel, Run
from tracekit.model.summary import RankSummary
from tracekit.stats.connected_components import connected_components
from tracekit.stats.rows_by_key import rows_by_value
from tracekit.stats.uncertainty import leave_one_out_medians


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrivals:
    """The instances of a run, and how its r ranks waited in them.

    Attributes:
        instances: collectives, then messages.
        collectives: how many of the instances are collectives.
        arrivals: int64 [r], in how many collectives of the counted steps each rank took part.
        wait_ns: int64 [r], for how long each rank had arrived at one of them, or several, at which another had not.
        instance_of: of each rank the instance of each of its collectives, int64, or -1.
        waited_ns: of each rank how long its kernel or span waited in each of its collectives for the last one, int64.
        message_times: how long the messages took.
    """

    instances: CollectiveInstances
    collectives: int
    arrivals: Int64
    wait_ns: Int64
    instance_of: tuple[Int64, ...]
    waited_ns: tuple[Int64, ...]
    message_times: MessageTimes


def arrivals_of(run: Run, steps: frozenset[int]) -> Arrivals:
    """Return all matched instances; sums by rank are over `steps`."""
    counted = np.array(sorted(steps), dtype=np.int64)
    arrivals = np.zeros(len(run.ranks), dtype=np.int64)
    instance_of = [np.full(len(s.collectives), ABSENT, dtype=np.int64) for s in run.ranks]
    waited_ns, early_ns = ([np.zeros(len(s.collectives), dtype=np.int64) for s in run.ranks] for _ in range(2))
    parts, orders, total = [], [ArrivalOrder.empty()], 0
    for matched in run.collectives:
        members = np.array([run.index_of_rank[rank] for rank in matched.ranks.tolist()], dtype=np.int64)
        part, order, waits = group_instances(run, matched, members)
        parts.append(part)
        orders.append(order)
        within = np.isin(matched.step, counted)
        arrivals[members] += (matched.row[:, within] >= 0).sum(axis=1)
        for column, member in enumerate(members.tolist()):
            known = np.flatnonzero(matched.row[column] >= 0)
            rows = matched.row[column][known]
            instance_of[member][rows] = total + known
            waited_ns[member][rows] = waits.spun_ns[known, column]
            early_ns[member][rows] = np.where(within[known], waits.early_ns[known, column], 0)
        total += matched.row.shape[1]
    messages = message_arrivals(run)
    parts.append(_message_instances(run, messages))
    instances = CollectiveInstances.concatenate(parts)
    _follow_chains(run, instances, ArrivalOrder.concatenate(orders), total, instance_of)
    return Arrivals(
        instances=instances,
        collectives=total,
        arrivals=arrivals,
        wait_ns=np.array(list(map(_waiting_ns, run.ranks, run.clocks, early_ns)), dtype=np.int64),
        instance_of=tuple(instance_of),
        waited_ns=tuple(waited_ns),
        message_times=messages.times,
    )


def _waiting_ns(summary: RankSummary, clock: ClockModel, early_ns: Int64) -> int:
    """Return how long a rank waited in collectives. early_ns: int64 [n], by how much it came before the last to each.

    Several collectives may be under way. The time in which more than one waits counts once.
    """
    waits = np.flatnonzero(early_ns > 0)
    since_ns = clock.to_run(summary.collectives.ready_ns[waits])
    return Intervals.union_of(since_ns, since_ns + early_ns[waits]).len_ns


def _message_instances(run: Run, found: MessageArrivals) -> CollectiveInstances:
    return CollectiveInstances.of_rows(
        len(found.rank),
        kind=KINDS.index("send"),
        members=2,
        rank=found.rank,
        row=found.row,
        step=run.messages.step,
        size_bytes=found.size_bytes,
        begin_ns=found.arrival_ns,
        end_ns=found.end_ns,
        transfer_ns=found.times.took_ns,
        released_ns=found.released_ns,
        since_ns=found.released_ns,
        excess_ns=found.excess_ns,
        **dict.fromkeys(("late_ns", "behind_ns", "waited_ns", "compute_ns", "data_ns"), 0),
        **dict.fromkeys(("operations", "usual_operations"), 0),
    )


def _follow_chains(
    run: Run, instances: CollectiveInstances, order: ArrivalOrder, collectives: int, instance_of: Sequence[Int64]
) -> None:
    """Fill in what depends on instances of several groups: how late the last rank was, and what came before.

    An instance must have begun later than the one before it, on the run's clock: otherwise instances might release
    each other in a circle where clocks are off by more than their error.
    """

    def earlier_only(before: Int64) -> Int64:
        begin_ns = instances.begin_ns[: len(before)]
        return np.where((before != ABSENT) & (instances.begin_ns[before] < begin_ns), before, ABSENT)

    def ended_on(rank: Int64, at_ns: Int64) -> Int64:
        return earlier_only(_instances_that_ended(run, collectives, instance_of, rank, at_ns))

    queued_behind = ended_on(order.busy, column_at(run, order.busy, order.busy_row, "queued_ns"))
    late_ns, behind_ns = lateness(order, np.where(queued_behind < collectives, queued_behind, ABSENT))
    instances.late_ns[:collectives], instances.behind_ns[:collectives] = late_ns, behind_ns
    instances.released_by[:] = ended_on(instances.rank, instances.released_ns)
    instances.begins_with[:] = instances.released_by
    passed = np.flatnonzero(instances.passed_row != ABSENT)
    rank = instances.rank[passed]
    for member in np.unique(rank[rank != ABSENT]).tolist():
        here = passed[rank == member]
        instances.begins_with[here] = instance_of[member][instances.passed_row[here]]
    instances.begins_with[:] = earlier_only(instances.begins_with)


def _instances_that_ended(run: Run, collectives: int, instance_of: Sequence[Int64], rank: Int64, at_ns: Int64) -> Int64:
    """Return the collective, or the message that was received, that ended on each rank at each time, int64 [n], or -1.

    rank: int64 [n], indexes in the run's ranks, or -1. at_ns: int64 [n], on these ranks' clocks, or -1.
    """
    result = np.full(len(rank), ABSENT, dtype=np.int64)
    order = np.argsort(rank, kind="stable")
    bounds = np.searchsorted(rank[order], np.arange(len(run.ranks) + 1))
    order_of_receiver = np.argsort(run.messages.destination, kind="stable")
    receivers = run.messages.destination[order_of_receiver]
    for member, summary in enumerate(run.ranks):
        here = order[bounds[member] : bounds[member + 1]]
        here = here[at_ns[here] != ABSENT]
        if not len(here):
            continue
        first, stop = np.searchsorted(receivers, (summary.rank, summary.rank + 1))
        received = order_of_receiver[first:stop]
        ends_ns = np.concatenate((summary.collectives.end_ns, summary.messages.end_ns[run.messages.recv[received]]))
        which = np.concatenate((instance_of[member], collectives + received))
        by_end = np.argsort(ends_ns, kind="stable")
        ends_ns, which = ends_ns[by_end], which[by_end]
        if not len(ends_ns):
            continue
        found = np.minimum(np.searchsorted(ends_ns, at_ns[here], side="left"), len(ends_ns) - 1)
        result[here] = np.where(ends_ns[found] == at_ns[here], which[found], ABSENT)
    return result


@dataclass(frozen=True, kw_only=True, eq=False)
class MessageArrivals:
    """m messages, in the order of the run's.

    Attributes:
        rank: int64 [m], index in the run's ranks of the last to arrive, -1 if both arrived at the same time.
        row: int64 [m], row of that rank's `Messages`.
        arrival_ns: int64 [m], the last arrival, on the run's clock.
        end_ns: int64 [m], on the run's clock.
        times: how long the messages took.
        released_ns: int64 [m], the last rank's last release, on that rank's clock, or -1.
        excess_ns: int64 [m], by how much the time from there to the arrival exceeds the peers' median; 0 without peers.
        size_bytes: int64 [m], or -1.
    """

    rank: Int64
    row: Int64
    arrival_ns: Int64
    end_ns: Int64
    times: MessageTimes
    released_ns: Int64
    excess_ns: Int64
    size_bytes: Int64


def message_arrivals(run: Run) -> MessageArrivals:
    """Return the arrivals at a run's matched messages."""
    matched = run.messages
    count = len(matched)
    since, excess = _segments(run)
    columns: dict[str, list[Int64]] = {}
    for side, rank, row in (("send", matched.source, matched.send), ("recv", matched.destination, matched.recv)):
        result = {name: np.full(count, ABSENT, dtype=np.int64) for name in ("at", "end", "since", "excess")}
        for number, here in rows_by_value(rank).items():
            member = run.index_of_rank[number]
            messages, rows, clock = run.ranks[member].messages, row[here], run.clocks[member]
            result["at"][here] = clock.to_run(messages.arrival_ns[rows])
            ends_ns = messages.end_ns[rows]
            result["end"][here] = np.where(ends_ns == ABSENT, ABSENT, clock.to_run(ends_ns))
            result["since"][here], result["excess"][here] = since[member][rows], excess[member][rows]
        columns[side] = [result[name] for name in ("at", "end", "since", "excess")]
    (sent, send_end, *of_sender), (received, recv_end, *of_receiver) = columns["send"], columns["recv"]
    by_sender = sent > received
    index_of = np.zeros(max(run.index_of_rank, default=0) + 1, dtype=np.int64)
    index_of[list(run.index_of_rank)] = list(run.index_of_rank.values())
    last = np.where(by_sender, index_of[matched.source], index_of[matched.destination])
    arrival_ns = np.maximum(sent, received)
    end_ns = np.where(recv_end != ABSENT, recv_end, np.where(send_end != ABSENT, send_end, arrival_ns))
    released_ns, excess_ns = (
        np.where(by_sender, sender, receiver) for sender, receiver in zip(of_sender, of_receiver, strict=True)
    )
    return MessageArrivals(
        rank=np.where(sent == received, ABSENT, last),
        row=np.where(by_sender, matched.send, matched.recv),
        arrival_ns=arrival_ns,
        end_ns=np.maximum(end_ns, arrival_ns),
        times=message_transfers(run),
        released_ns=released_ns,
        excess_ns=excess_ns,
        size_bytes=message_sizes(run),
    )


def _segments(run: Run) -> tuple[list[Int64], list[Int64]]:
    """Return for each rank when it was last released before each message, and the excess of the time since then.

    A release is -1 where there is none. The beginning of the first step counts as a release. The excess is over the
    median of the rank's peers, 0 without peers.
    """
    since, segment_ns = [], []
    for summary in run.ranks:
        messages, arrival_ns = summary.messages, summary.messages.arrival_ns
        if not len(messages):
            since.append(arrival_ns)
            segment_ns.append(arrival_ns)
            continue
        received = (~messages.is_send) & (messages.end_ns != ABSENT)
        begin_ns = np.array([step.start_ns for step in summary.steps], dtype=np.int64)[:1]
        released_ns = np.unique(np.concatenate((begin_ns, messages.end_ns[received], summary.collectives.end_ns)))
        before = np.searchsorted(released_ns, arrival_ns, side="right") - 1
        known = before >= 0
        since.append(np.where(known, released_ns[np.maximum(before, 0)], ABSENT) if len(released_ns) else before)
        segment_ns.append(np.where(since[-1] == ABSENT, 0, arrival_ns - since[-1]))
    excess = [np.zeros(len(of_rank_ns), dtype=np.int64) for of_rank_ns in segment_ns]
    for peers in _peer_sets(run):
        values = np.stack([segment_ns[member] for member in peers], axis=1)
        known = np.stack([since[member] != ABSENT for member in peers], axis=1)
        beyond_ns = np.where(
            known & (known.sum(axis=1, keepdims=True) > 1), values - leave_one_out_medians(values, known), 0
        )
        for column, member in enumerate(peers):
            excess[member] = beyond_ns[:, column]
    return since, excess


def _peer_sets(run: Run) -> list[list[int]]:
    """Return sets of peers, each as indexes of ranks: they share a group and exchange the same sizes in order."""
    signature = [
        (s.messages.is_send.tobytes(), s.messages.size_bytes.tobytes(), s.messages.step.tobytes()) for s in run.ranks
    ]
    pairs = []
    for matched in run.collectives:
        seen: dict[tuple[bytes, ...], int] = {}
        for rank in matched.ranks.tolist():
            member = run.index_of_rank[rank]
            if len(run.ranks[member].messages):
                pairs.append((member, seen.setdefault(signature[member], member)))
    return [peers for peers in connected_components(pairs) if len(peers) > 1]
