"""Which ranks send messages to which, how much and how fast, and how long each message takes.

On a GPU a kernel sends or receives one message, or a batch of several. Both kernels run while the message is on its
way, so it takes at most as long as the shorter one, each on its own clock. That may be much too long, where a kernel
also waited for the other messages of its batch, or for a sender whose own kernel did. But in most jobs some messages
between two ranks wait for nothing. The fastest of a size tells how long the others take by themselves.

On a CPU a message is on its way from when it is sent and its receive is posted until it is received. That moment is
recorded only if the receiver was waiting for it. Otherwise the receive ends when its rank looks for the message, which
may be long after it came:

    sends     ------|send                          it took at most this long, of which `unseen`
    receives  |posts====|computes=========|waits|  passed before the receiver waited

A receiver that had to wait saw the end of the transfer. One that did not knows only that it was over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.communication import Messages
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.run import Run
from tracekit.stats.rows_by_key import number_rows, rows_by_value
from tracekit.stats.uncertainty import quartiles

_NEVER, _EVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_NONE = np.empty(0, dtype=np.int64)

_LOOK_NS = 50_000  # a wait no longer than this may have found the message there, which takes 5 to 20 us
_MOMENT_NS = 50_000  # from posting a receive to waiting for it, where nothing is between the two
_ONE_OF = 50  # messages may seem too fast, for records are not perfect


def kernels_of_messages(messages: Messages) -> Int64:
    """Return int64 [n]: numbers that the messages of one rank have in common if they share a kernel."""
    times = np.stack((messages.start_ns, messages.end_ns, np.where(messages.start_ns == ABSENT, messages.issue_ns, 0)))
    return np.unique(times, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def message_kernels(run: Run) -> tuple[Int64, Int64]:
    """Return the kernels that send and that receive each of the run's messages, int64 [m] each.

    Kernels of different ranks have different numbers.
    """
    matched = run.messages
    send_kernel, recv_kernel = np.full((2, len(matched)), ABSENT)
    sent, received = rows_by_value(matched.source), rows_by_value(matched.destination)
    for rank_index, summary in enumerate(run.ranks):
        kernels = (rank_index << 32) + kernels_of_messages(summary.messages)
        sends, receives = sent.get(summary.rank, _NONE), received.get(summary.rank, _NONE)
        send_kernel[sends], recv_kernel[receives] = kernels[matched.send[sends]], kernels[matched.recv[receives]]
    return send_kernel, recv_kernel


def message_sizes(run: Run) -> Int64:
    """Return int64 [m]: the size of each of the run's messages in bytes, as either rank recorded it; or -1."""
    matched = run.messages
    size_bytes = np.full(len(matched), ABSENT)
    sides = ((rows_by_value(matched.source), matched.send), (rows_by_value(matched.destination), matched.recv))
    for summary in run.ranks:
        for messages_of, row in sides:
            here = messages_of.get(summary.rank, _NONE)
            size_bytes[here] = np.maximum(size_bytes[here], summary.messages.size_bytes[row[here]])
    return size_bytes


@dataclass(frozen=True, kw_only=True, eq=False)
class MessageTimes:
    """How long m messages took once they were sent and their receives were posted.

    Attributes:
        took_ns: int64 [m], at most; or -1 where nothing is known.
        unseen_ns: int64 [m], how much of it passed before the receiver waited for the message.
        is_exact: bool [m], whether the receiver waited when the message came, so that it took `took_ns`. On a GPU it
            is False: kernels may have waited for other messages.
    """

    took_ns: Int64
    unseen_ns: Int64
    is_exact: Bool

    @property
    def by_themselves_ns(self) -> Int64:
        """Return the times that say how long messages take by themselves if they wait for nothing, int64 [m]; or -1.

        On a CPU they are those that are exact. On a GPU, all are the most that messages took.
        """
        return np.where(self.is_exact | (self.unseen_ns == 0), self.took_ns, ABSENT)

    @property
    def at_least_ns(self) -> Int64:
        """Return how long each message took at least, int64 [m]; or -1 where nothing is known."""
        return np.where(self.is_exact | (self.took_ns == ABSENT), self.took_ns, 0)


def message_transfers(run: Run) -> MessageTimes:
    """Return how long the run's messages took."""
    matched = run.messages
    begin_ns, shorter_ns = np.full(len(matched), _NEVER), np.full(len(matched), _EVER)
    ended_ns, awaited_ns = np.full((2, len(matched)), ABSENT)
    on_gpu = np.zeros(len(matched), dtype=np.bool_)
    sent, received = rows_by_value(matched.source), rows_by_value(matched.destination)
    for rank_index, summary in enumerate(run.ranks):
        messages, clock = summary.messages, run.clocks[rank_index]
        since_ns = clock.to_run(np.where(messages.start_ns == ABSENT, messages.ready_ns, messages.start_ns))
        until_ns = np.where(messages.end_ns == ABSENT, ABSENT, clock.to_run(messages.end_ns))
        duration_ns = np.where(messages.start_ns == ABSENT, _EVER, messages.end_ns - messages.start_ns)
        for messages_of, row in ((sent, matched.send), (received, matched.recv)):
            here = messages_of.get(summary.rank, _NONE)
            begin_ns[here] = np.maximum(begin_ns[here], since_ns[row[here]])
            shorter_ns[here] = np.minimum(shorter_ns[here], duration_ns[row[here]])
        receives = received.get(summary.rank, _NONE)
        rows = matched.recv[receives]
        ended_ns[receives] = until_ns[rows]
        is_awaited = messages.awaited_ns[rows] != ABSENT
        awaited_ns[receives] = np.where(is_awaited, clock.to_run(messages.awaited_ns[rows]), ABSENT)
        on_gpu[receives] = summary.device == "gpu"
    waited = (awaited_ns <= begin_ns) | (ended_ns - awaited_ns > _LOOK_NS)
    is_exact = ~on_gpu & (awaited_ns != ABSENT) & (ended_ns != ABSENT) & waited
    on_cpu_ns = np.where(ended_ns == ABSENT, ABSENT, np.maximum(ended_ns - begin_ns, 0))
    took_ns = np.where(on_gpu, np.where(shorter_ns == _EVER, ABSENT, shorter_ns), on_cpu_ns)
    unseen_ns = np.where(awaited_ns == ABSENT, took_ns, np.clip(awaited_ns - begin_ns, 0, np.maximum(took_ns, 0)))
    return MessageTimes(took_ns=took_ns, unseen_ns=np.where(on_gpu, 0, unseen_ns), is_exact=is_exact)


def awaited_soonest(unseen_ns: Int64, group: Int64) -> Bool:
    """Return which messages of each group tell most of how long they took, bool [m], half of them or more.

    They are those for which the receivers waited soonest. That does not depend on how long the messages took, while
    those whose end is known are the long ones.

    unseen_ns: int64 [m], as in `MessageTimes`. group: int64 [m], 0 <= i < g, each of which has messages.
    """
    limit_ns = np.maximum(quartiles(unseen_ns, group)[1], _MOMENT_NS)
    return np.asarray(unseen_ns <= limit_ns[group])


def usual_transfers(run: Run, times: MessageTimes) -> Int64:
    """Return how long messages of each one's size usually take between its two ranks, int64 [m]; or -1.

    It is the median of those for which the receivers waited soonest. Where most of these came unseen, it is the median
    of other links with the same size.
    """
    matched, size_bytes = run.messages, message_sizes(run)
    result = np.full(len(matched), ABSENT)
    known = np.flatnonzero(times.took_ns != ABSENT)
    if not len(known):
        return result
    link = number_rows(size_bytes[known], matched.source[known], matched.destination[known])
    size_of_link = np.zeros(int(link.max()) + 1, dtype=np.int64)
    size_of_link[link] = size_bytes[known]
    soonest = awaited_soonest(times.unseen_ns[known], link)
    usual_ns = quartiles(times.took_ns[known[soonest]], link[soonest])[1]
    is_seen = times.by_themselves_ns[known[soonest]] != ABSENT
    unseen = 2 * np.bincount(link[soonest], is_seen) < np.bincount(link[soonest])
    for size in np.unique(size_of_link[unseen]).tolist():
        others = (size_of_link == size) & ~unseen
        usual_ns[(size_of_link == size) & unseen] = int(np.median(usual_ns[others])) if others.any() else ABSENT
    result[known] = usual_ns[link]
    return result


def fastest_messages(run: Run, took_ns: Int64) -> Int64:
    """Return int64 [m]: the time of the fastest message of its size between the same two ranks, in either direction.

    took_ns: int64 [m], as from `message_transfers`. The result is -1 where that is, and where the size is not known.
    """
    matched, size_bytes = run.messages, message_sizes(run)
    ends = np.sort(np.stack((matched.source, matched.destination)).astype(np.int64), axis=0)
    known = np.flatnonzero((took_ns != ABSENT) & (size_bytes != ABSENT))
    number = number_rows(size_bytes[known], *ends[:, known])
    result = np.full(len(took_ns), ABSENT)
    result[known] = fastest_of_each(took_ns[known], number)[number]
    return result


def fastest_of_each(took_ns: Int64, group: Int64) -> Int64:
    """Return the time of the fastest message of each group, int64 [g], but for those that seem too fast.

    took_ns: int64 [m]. group: int64 [m], 0 <= i < g, each of which has messages.
    """
    counts = np.bincount(group)
    ordered = took_ns[np.lexsort((took_ns, group))]
    return np.asarray(ordered[np.cumsum(counts) - counts + np.maximum(counts // _ONE_OF, 1) - 1])


@dataclass(frozen=True, kw_only=True, eq=False)
class RankPairs(Columnar):
    """k ordered pairs of ranks that exchanged messages, by sender, then receiver. int64 [k] each.

    Attributes:
        source: the sender, or the lowest of the ranks that it stands for.
        destination: the receiver, likewise.
        count: messages that were matched on both sides.
        size_bytes: of these whose size is known.
        transfer_ns: how long those took whose time is known, from when both sides were ready.
        transfer_bytes: the size of those whose size and time are known.
    """

    source: Int64
    destination: Int64
    count: Int64
    size_bytes: Int64
    transfer_ns: Int64
    transfer_bytes: Int64


def rank_pairs(run: Run, ranks_per_cell: int = 1) -> RankPairs:
    """Return the sums over the run's matched messages. Ranks are counted together, so many consecutive ones."""
    matched = run.messages
    if not len(matched):
        return RankPairs.empty()
    source = matched.source.astype(np.int64) // ranks_per_cell * ranks_per_cell
    destination = matched.destination.astype(np.int64) // ranks_per_cell * ranks_per_cell
    size_bytes, took_ns = message_sizes(run), message_transfers(run).took_ns
    pair = number_rows(source, destination)
    first = np.unique(pair, return_index=True)[1]

    def sums(values: Int64, known: np.ndarray) -> Int64:
        result = np.zeros(len(first), dtype=np.int64)
        np.add.at(result, pair[known], values[known])
        return result

    sized, timed = size_bytes != ABSENT, took_ns > 0
    pairs = RankPairs(
        source=source[first],
        destination=destination[first],
        count=np.bincount(pair),
        size_bytes=sums(size_bytes, sized),
        transfer_ns=sums(took_ns, timed),
        transfer_bytes=sums(size_bytes, sized & timed),
    )
    return pairs.rows(np.lexsort((pairs.destination, pairs.source)))
