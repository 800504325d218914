"""How long each transfer takes once all its ranks are ready."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.explain.whatif.graph.operations import Operations
from tracekit.explain.whatif.graph.run_communication import Communication
from tracekit.model.columnar import Columnar
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.run import ClockModel

_LONGER = 1.2  # times the least: so much longer a message took because of another one of its batch
_LEAST = 0.05  # of the messages over a network link: so many may seem to be shorter than they are, as clocks drift


@dataclass(frozen=True, kw_only=True, eq=False)
class Transfers(Columnar):
    """Communication of ranks: when they were ready, and when it ended there, on the run's clock.

    Attributes:
        operation: the operation, int64 [c].
        arrived_ns: when the rank was ready for it, and the communication before it had ended, int64 [c].
        end_ns: int64 [c].
        group: int64 [c], equal for what ends together, or -1.
        follows: the operation that has to end on this rank before this one begins, or -1, int64 [c].
        rank: int64 [c].
        network_link: int64 [c].
        size_bytes: int64 [c].
        spins: as in `Communication`, bool [c].
        batched: as in `Communication`, bool [c].
        error_ns: how far the rank's clock may be wrong, int64 [c].
        ahead_ns: by how much the rank's clock is taken to be ahead of the run's, int64 [c].
        machine: int64 [c], equal for ranks of one machine, which share a clock.
    """

    operation: Int64
    arrived_ns: Int64
    end_ns: Int64
    group: Int64
    follows: Int64
    rank: Int64
    network_link: Int64
    size_bytes: Int64
    spins: Bool
    batched: Bool
    error_ns: Int64
    ahead_ns: Int64
    machine: Int64

    @classmethod
    def of_rank(
        cls,
        clock: ClockModel,
        machine: int,
        communication: Communication,
        rows: Int64,
        operations: Int64,
        arrived_ns: Int64,
    ) -> Transfers:
        """Return the transfers of a rank. rows: of its communication, int64 [c], with the operation of each."""
        operation_of = np.full(len(communication) + 1, ABSENT, dtype=np.int64)
        operation_of[rows] = operations
        earlier, own_end_ns = communication.follows[rows], communication.own_end_ns[rows]
        follows = operation_of[earlier]
        ended_ns = np.append(communication.end_ns, ABSENT)[np.where(follows == ABSENT, ABSENT, earlier)]
        return cls(
            operation=operations,
            arrived_ns=np.maximum(arrived_ns, ended_ns),
            end_ns=communication.end_ns[rows],
            group=communication.group[rows],
            follows=follows,
            rank=np.full(len(rows), clock.rank, dtype=np.int64),
            network_link=communication.network_link[rows],
            size_bytes=communication.comparable_size_bytes[rows],
            spins=communication.spins[rows],
            batched=communication.batched[rows],
            error_ns=np.full(len(rows), clock.error_ns or 0, dtype=np.int64),
            ahead_ns=own_end_ns - clock.to_run(own_end_ns),
            machine=np.full(len(rows), machine, dtype=np.int64),
        )


def synchronise(operations: Operations, transfers: Transfers) -> None:
    """Set the durations of transfers, and let them follow one another.

    Kernels that spin take the transfer's time on the rank that came last, and longer on the others. So the transfer is
    the shortest time from the arrival to the end on one rank, whatever the clocks of the others say. A kernel that
    carries several messages may have waited for another one: then the message took as long as few over its link did.

    In other communication a member that was over before the last one arrived had not waited for it: it leaves the
    group, and the last one waits for it.
    """
    follows = transfers.follows != ABSENT
    before, after = [transfers.follows[follows]], [transfers.operation[follows]]
    alone = transfers.group == ABSENT
    group = np.where(alone, transfers.group.max(initial=-1) + 1 + np.arange(len(transfers)), transfers.group)
    number = np.unique(group, return_inverse=True)[1]
    order = np.lexsort((transfers.operation, transfers.arrived_ns, number))
    last = order[np.searchsorted(number[order], number, side="right") - 1]  # of each the member that arrived last
    spins = np.ones(int(number.max(initial=-1)) + 1, dtype=np.bool_)
    np.logical_and.at(spins, number, transfers.spins)
    left = ~spins[number] & (transfers.end_ns < transfers.arrived_ns[last])
    before.append(transfers.operation[left])
    after.append(transfers.operation[last[left]])
    since_ns = np.where(left | spins[number], transfers.arrived_ns, transfers.arrived_ns[last])
    duration_ns = np.maximum(transfers.end_ns - since_ns, 0)
    duration_ns = np.where(spins[number], _spinning_ns(transfers, number, duration_ns), duration_ns)
    operations.set_times(transfers.operation, duration_ns)
    operations.leave_group(transfers.operation[left])
    operations.wait(np.concatenate(before), np.concatenate(after))


def _spinning_ns(transfers: Transfers, number: Int64, duration_ns: Int64) -> Int64:
    """Return the transfer of each group of kernels that spin, int64 [c].

    number: of the group, int64 [c]. duration_ns: from arrival to end on each rank, int64 [c].
    """
    count = int(number.max(initial=-1)) + 1
    shortest_ns = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(shortest_ns, number, duration_ns)
    result = shortest_ns[number]
    if not transfers.batched.any():
        return result
    least_ns = _least_messages_ns(transfers, number, result)
    return np.where((least_ns != ABSENT) & (result > _LONGER * least_ns), least_ns, result)


def _least_messages_ns(transfers: Transfers, number: Int64, shortest_ns: Int64) -> Int64:
    """Return how long messages of batches take if no other message of the batch delays them, int64 [c]; -1 for others.

    Every message over a link sets limits: it took no longer than from its arrival on either rank to its end there, and
    no longer than from its arrival on one to its end on the other. The latter two are wrong by the clocks' error at
    most, one by as much as the other in the other direction, so that their mean is right. Those of one machine share a
    clock, unless its models contradict that. The least limits hold for all messages of that size. Nothing is known of
    messages of unknown size.

    number: of the group, int64 [c]. shortest_ns: from arrival to end on the rank that came last, int64 [c].
    """
    result = np.full(len(transfers), ABSENT, dtype=np.int64)
    order = np.lexsort((transfers.rank, number))
    counts = np.bincount(number)
    pairs = order[counts[number[order]] == 2].reshape(-1, 2)
    pairs = pairs[transfers.spins[pairs].all(axis=1) & (transfers.size_bytes[pairs] != ABSENT).any(axis=1)]
    error_ns, ahead_ns = transfers.error_ns[pairs].sum(axis=1), np.diff(transfers.ahead_ns[pairs], axis=1)[:, 0]
    share_clock = np.diff(transfers.machine[pairs], axis=1)[:, 0] == 0
    share_clock &= np.abs(ahead_ns) <= error_ns
    error_ns[share_clock] = 0
    ahead_ns[~share_clock] = 0
    there_ns, back_ns = (transfers.end_ns[pairs] - transfers.arrived_ns[pairs[:, ::-1]]).T
    there_ns, back_ns = there_ns - ahead_ns, back_ns + ahead_ns
    cargo = np.stack((transfers.network_link[pairs[:, 0]], transfers.size_bytes[pairs].max(axis=1)))
    cargo = np.unique(cargo, axis=1, return_inverse=True)[1]
    cargo = cargo.reshape(-1)
    for label in np.unique(cargo[transfers.batched[pairs].any(axis=1)]).tolist():
        here = cargo == label
        own_ns, first_ns, second_ns = (
            int(np.quantile(times_ns, _LEAST, method="lower"))
            for times_ns in (shortest_ns[pairs[here, 0]], there_ns[here], back_ns[here])
        )
        most_ns = min(first_ns, second_ns) + int(error_ns[here].max())
        limit_ns = min(own_ns, (first_ns + second_ns) // 2, most_ns)
        result[pairs[here]] = max(limit_ns, 0)
    return result
