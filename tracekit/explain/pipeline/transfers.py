"""What a pipeline's ranks send each other: which action waits for which, and how long each transfer took.

A forward waits for the forward of the stage before it, a backward for the backward of the stage behind it. Between two
actions of one rank nothing is sent. A transfer can begin once the producing action has ended, and so has the action
behind which the receive is posted, or the step before, and no rank is blocked in another send. It begins when both
hosts have issued it. The time between is the lateness of a host. It ends with the receive. Two ranks exchange the
results of actions in the order of the actions. Without messages, the receive counts as posted after the action before
the consumer, and the transfer ends when the consumer begins.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.explain.pipeline.steps import ActionOrder
from tracekit.job.message_times import fastest_messages, message_kernels, message_transfers
from tracekit.model.communication import Messages
from tracekit.model.events import ABSENT, Bool, Int32, Int64
from tracekit.model.run import Run
from tracekit.model.spans import ACTION_KINDS
from tracekit.stats.rows_by_key import rows_by_key

_NEVER = np.iinfo(np.int64).min
_F, _B, _I = (ACTION_KINDS.index(kind) for kind in ("F", "B", "I"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Edges:
    """The e pairs of actions in which one waits for an action of another rank.

    Attributes:
        producers: int64 [e], the action that is waited for.
        consumers: int64 [e], the action that waits.
        previous: int64 [e], the action before the consumer on its rank, or -1.
    """

    producers: Int64
    consumers: Int64
    previous: Int64

    def __len__(self) -> int:
        return len(self.producers)


@dataclass(frozen=True, kw_only=True, eq=False)
class Transfers:
    """The transfers of e edges in k steps.

    Attributes:
        posted_after: int64 [e], the action of the consumer's rank after which the receive is posted, or -1.
        ended_ns: int64 [e, k], when the transfer ended, on the run's clock.
        took_ns: int64 [e, k], from its beginning to its end.
        late_ns: int64 [e, k], how long after it could have begun it began.
        late_sender: bool [e, k], whether the sender's host was late, and not the receiver's.
        visible: bool [e, k], whether the consumer's rank was idle all that time; otherwise the transfer took at most
            `took_ns`.
        joint: int64 [2, d], transfers and actions: the action waits for the transfer, too, because it is in one batch
            with the action's input.
    """

    posted_after: Int64
    ended_ns: Int64
    took_ns: Int64
    late_ns: Int64
    late_sender: Bool
    visible: Bool
    joint: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class MessageExchange:
    """The m messages from one rank to another, in the order in which they were issued.

    Attributes:
        step: int64 [m], ascending.
        sent_ns: int64 [m], when the sender's host issued it, on the run's clock.
        received_ns: int64 [m], when the receiver's host issued it, on the run's clock.
        posted_ns: int64 [m], when the receiver was ready for it, on the run's clock.
        free_ns: int64 [m], when neither rank waited any more for a send that it had issued before, on the run's clock.
        ended_ns: int64 [m], when the receive ended, on the run's clock.
        alone_ns: int64 [m], how long the message took without others of its batch, or -1.
        send_kernel: int64 [m], which the sender's messages of a batch have in common.
        recv_kernel: int64 [m], likewise. No two ranks have the same numbers.
    """

    step: Int64
    sent_ns: Int64
    received_ns: Int64
    posted_ns: Int64
    free_ns: Int64
    ended_ns: Int64
    alone_ns: Int64
    send_kernel: Int64
    recv_kernel: Int64


def message_exchanges(run: Run) -> dict[tuple[int, int], MessageExchange]:
    """Return the messages from each rank to each other, by the two ranks, without those whose receive has no end."""
    summaries = {summary.rank: summary.messages for summary in run.ranks}
    clocks = {clock.rank: clock for clock in run.clocks}
    send_kernel, recv_kernel = message_kernels(run)
    alone_ns = fastest_messages(run, message_transfers(run).took_ns)
    matched = run.messages
    result = {}
    for (source, destination), of_pair in rows_by_key(matched.source, matched.destination).items():
        sends, receives = summaries[source], summaries[destination]
        rows = of_pair[receives.end_ns[matched.recv[of_pair]] != ABSENT]
        rows = rows[np.lexsort((sends.issue_ns[matched.send[rows]], matched.step[rows]))]
        send, recv = matched.send[rows], matched.recv[rows]
        result[source, destination] = MessageExchange(
            step=matched.step[rows],
            sent_ns=clocks[source].to_run(sends.issue_ns[send]),
            received_ns=clocks[destination].to_run(receives.issue_ns[recv]),
            posted_ns=clocks[destination].to_run(receives.ready_ns[recv]),
            free_ns=np.maximum(
                clocks[source].to_run(_waited_until_ns(sends, sends.issue_ns[send])),
                clocks[destination].to_run(_waited_until_ns(receives, receives.issue_ns[recv])),
            ),
            ended_ns=clocks[destination].to_run(receives.end_ns[recv]),
            alone_ns=alone_ns[rows],
            send_kernel=send_kernel[rows],
            recv_kernel=recv_kernel[rows],
        )
    return result


def _waited_until_ns(messages: Messages, time_ns: Int64) -> Int64:
    """Return when a rank had last returned from a wait for a send at some times, int64 [m]; 0 for never."""
    until_ns = np.sort(messages.end_ns[messages.is_send & (messages.awaited_ns != ABSENT)])
    return np.append(0, until_ns)[np.searchsorted(until_ns, time_ns, side="right")]


def edges_between_ranks(rank: Int64, kind: Int32, stage: Int32, microbatch: Int32) -> Edges:
    """Return the edges between n actions, int [n] each, that lie rank by rank in the order in which each runs them."""
    # If a schedule runs several times a step, each action occurs as often, and the n-th waits for the n-th.
    times: Counter[tuple[int, int, int]] = Counter()
    action_index: dict[tuple[int, int, int, int], int] = {}
    for i, key in enumerate(zip(kind.tolist(), stage.tolist(), microbatch.tolist(), strict=True)):
        action_index[*key, times[key]] = i
        times[key] += 1
    edges = []
    for (action_kind, action_stage, number, time), i in action_index.items():
        waits_for: tuple[tuple[int, int], ...] = ()
        if action_kind == _F:
            waits_for = ((_F, action_stage - 1),)
        elif action_kind in (_B, _I):
            waits_for = ((_B, action_stage + 1), (_I, action_stage + 1))
        sources = (action_index.get((*source, number, time)) for source in waits_for)
        edges += [(source, i) for source in sources if source is not None and rank[source] != rank[i]]
    producers, consumers = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    first = np.diff(rank, prepend=ABSENT) != 0
    return Edges(producers=producers, consumers=consumers, previous=np.where(first[consumers], ABSENT, consumers - 1))


def measure_transfers(
    exchanges: Mapping[tuple[int, int], MessageExchange], ranks: Sequence[int], order: ActionOrder, edges: Edges
) -> Transfers:
    """Return the transfers of the edges.

    exchanges: from `message_exchanges`. ranks: those that the places in `order.rank` stand for.
    """
    shape = (len(edges), len(order.steps))
    before_ns = np.where((edges.previous == ABSENT)[:, None], _NEVER, order.end_ns[edges.previous])
    sent_ns, received_ns, posted_ns, free_ns = np.full((4, *shape), _NEVER)
    ended_ns = order.start_ns[edges.consumers].copy()
    alone_ns, send_kernel, recv_kernel = np.full((3, *shape), ABSENT)
    posted_after = edges.previous.copy()
    ends = np.stack((order.rank[edges.producers], order.rank[edges.consumers]))
    for source, destination in np.unique(ends, axis=1).T.tolist():
        exchange = exchanges.get((ranks[source], ranks[destination]))
        if exchange is None:
            continue
        between = np.flatnonzero((ends[0] == source) & (ends[1] == destination))
        for i, step, rows in _messages_of_edges(edges.producers[between], order.steps, exchange.step):
            index = (between[i], step)
            posted_ns[index] = exchange.posted_ns[rows].max()
            first = rows.start + int(np.maximum(exchange.sent_ns[rows], exchange.received_ns[rows]).argmin())
            sent_ns[index], received_ns[index] = exchange.sent_ns[first], exchange.received_ns[first]
            free_ns[index] = exchange.free_ns[first]
            ended_ns[index] = min(exchange.ended_ns[rows].max(), ended_ns[index])
            alone_ns[index] = exchange.alone_ns[rows].max()
            send_kernel[index], recv_kernel[index] = exchange.send_kernel[rows][-1], exchange.recv_kernel[rows][-1]
        posted_after[between] = _posted_after(order, destination, edges.previous[between], posted_ns[between])
    # Of receives that are not known it is not known either from when on the rank could have posted them.
    first_ns = np.where(posted_ns == _NEVER, _NEVER, _reached_ns(order)[ends[1]])
    posted_by_ns = np.where((posted_after == ABSENT)[:, None], first_ns, order.end_ns[posted_after])
    begin_ns = np.maximum(np.maximum(order.end_ns[edges.producers], posted_by_ns), free_ns)
    begun_ns = np.maximum(begin_ns, np.maximum(sent_ns, received_ns))
    begun_ns = np.maximum(np.minimum(begun_ns, ended_ns), begin_ns)
    joint = _joint(send_kernel, recv_kernel, edges.consumers)
    took_ns = np.maximum(ended_ns - begun_ns, 0)
    batched = np.isin(edges.consumers, joint[1])
    # The end of a kernel of several messages does not tell when each of them was through.
    took_ns[batched] = np.where(alone_ns == ABSENT, took_ns, np.minimum(took_ns, alone_ns))[batched]
    return Transfers(
        posted_after=posted_after,
        ended_ns=ended_ns,
        took_ns=took_ns,
        late_ns=begun_ns - begin_ns,
        late_sender=sent_ns > received_ns,
        visible=begin_ns >= before_ns,
        joint=joint,
    )


def _reached_ns(order: ActionOrder) -> Int64:
    """Return when each rank could have begun each step, int64 [ranks, k]: with the end of the step before, if known."""
    reached_ns = order.begin_ns.copy()
    last_ns = order.end_ns[np.append(order.first[1:], True)]
    follows = np.diff(order.steps) == 1
    reached_ns[:, 1:][:, follows] = np.minimum(reached_ns[:, 1:], last_ns[:, :-1])[:, follows]
    return reached_ns


def _messages_of_edges(producers: Int64, steps: Int64, step: Int64) -> list[tuple[int, int, slice]]:
    """Return (edge, index of the step, messages) for the edges between two ranks whose messages are known.

    producers: int64 [e], the actions that send. steps: int64 [k]. step: of each message, int64 [m], in the order in
    which they were issued. A rank sends its results in the order of its actions, each in as many messages.
    """
    result = []
    edges = np.argsort(producers, kind="stable").tolist()
    for index, number in enumerate(steps.tolist()):
        first, stop = np.searchsorted(step, (number, number + 1)).tolist()
        each, left = divmod(stop - first, max(len(edges), 1))
        if each and not left:
            result += [(edge, index, slice(first + i * each, first + (i + 1) * each)) for i, edge in enumerate(edges)]
    return result


def _posted_after(order: ActionOrder, receiver: int, previous: Int64, posted_ns: Int64) -> Int64:
    """Return after which action of the receiving rank each receive is typically posted, int64 [e], or -1.

    previous: int64 [e], the action before the one that needs it. posted_ns: int64 [e, k], when the rank was ready for
    all of it.
    """
    on_receiver = np.flatnonzero(order.rank == receiver)
    after = np.repeat(previous[:, None], posted_ns.shape[1], axis=1)
    known = posted_ns != _NEVER
    for step in range(posted_ns.shape[1]):
        number = np.searchsorted(order.end_ns[on_receiver, step], posted_ns[:, step], side="right") - 1
        posted = np.where(number >= 0, on_receiver[np.maximum(number, 0)], ABSENT)
        after[:, step] = np.where(known[:, step], posted, previous)
    # The lower one of the two in the middle: between two actions of a rank lie those of others.
    typical = np.sort(after, axis=1)[:, (after.shape[1] - 1) // 2] if after.shape[1] else previous
    return np.where(known.any(axis=1), np.minimum(typical, previous), previous)


def _joint(send_kernel: Int64, recv_kernel: Int64, consumers: Int64) -> Int64:
    """Return which transfers share a batch with the input of which action, int64 [2, d], in most steps.

    send_kernel, recv_kernel: int64 [e, k], or -1.
    """
    counts: Counter[tuple[int, int]] = Counter()
    for step in range(recv_kernel.shape[1]):
        of_kernel: dict[int, list[int]] = defaultdict(list)
        for side in (send_kernel, recv_kernel):
            for edge in np.flatnonzero(side[:, step] != ABSENT).tolist():
                of_kernel[int(side[edge, step])].append(edge)
        for edge in np.flatnonzero(recv_kernel[:, step] != ABSENT).tolist():
            others = set(of_kernel[int(recv_kernel[edge, step])]) - {edge}
            counts.update((other, int(consumers[edge])) for other in others)
    pairs = sorted(pair for pair, count in counts.items() if 2 * count > recv_kernel.shape[1])
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T
