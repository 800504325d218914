"""What a pipeline's ranks send each other: which action waits for which, and how long each transfer took.

A forward waits for the forward of the stage before it, a backward for the backward of the stage behind it. Between two
actions of one rank nothing is sent. A transfer begins when the producing action has ended and the receive is posted,
and ends with the receive. It consists of the messages that are sent after the producing action, and before the next
action on that rank ends. Without messages, in another tool's trace, the receive counts as posted after the action
before the consumer, and the transfer ends when the consumer begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.pipeline.steps import ActionOrder
from tracekit.model.events import ABSENT, Bool, Int32, Int64
from tracekit.model.run import Run
from tracekit.model.spans import ACTION_KINDS

__all__ = ["Edges", "Transfers", "edges_between_ranks", "measure_transfers"]

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
        took_ns: int64 [e, k], from when the transfer could begin to its end.
        visible: bool [e, k], whether the consumer's rank was idle all that time; otherwise the transfer took at most
            `took_ns`.
    """

    posted_after: Int64
    took_ns: Int64
    visible: Bool


def edges_between_ranks(rank: Int64, kind: Int32, stage: Int32, microbatch: Int32) -> Edges:
    """Return the edges between n actions, int [n] each, that lie rank by rank in the order in which each runs them."""
    # If a schedule runs several times a step, each action occurs as often, and the n-th waits for the n-th.
    times: Counter[tuple[int, int, int]] = Counter()
    place: dict[tuple[int, int, int, int], int] = {}
    for i, key in enumerate(zip(kind.tolist(), stage.tolist(), microbatch.tolist(), strict=True)):
        place[*key, times[key]] = i
        times[key] += 1
    edges = []
    for (action_kind, action_stage, number, time), i in place.items():
        waits_for: tuple[tuple[int, int], ...] = ()
        if action_kind == _F:
            waits_for = ((_F, action_stage - 1),)
        elif action_kind in (_B, _I):
            waits_for = ((_B, action_stage + 1), (_I, action_stage + 1))
        sources = (place.get((*source, number, time)) for source in waits_for)
        edges += [(source, i) for source in sources if source is not None and rank[source] != rank[i]]
    producers, consumers = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    first = np.diff(rank, prepend=ABSENT) != 0
    return Edges(producers=producers, consumers=consumers, previous=np.where(first[consumers], ABSENT, consumers - 1))


def measure_transfers(run: Run, ranks: Sequence[int], order: ActionOrder, edges: Edges) -> Transfers:
    """Return the transfers of the edges. ranks: those that the places in `order.rank` stand for."""
    before_ns = np.where((edges.previous == ABSENT)[:, None], np.iinfo(np.int64).min, order.end_ns[edges.previous])
    posted_ns = before_ns.copy()
    ended_ns = order.start_ns[edges.consumers].copy()
    posted_after = edges.previous.copy()
    place = {rank: number for number, rank in enumerate(ranks)}
    for source, destination, messages in _messages(run, ranks):
        sender, receiver = place[source], place[destination]
        between = np.flatnonzero((order.rank[edges.producers] == sender) & (order.rank[edges.consumers] == receiver))
        on_receiver = np.flatnonzero(order.rank == receiver)
        after = np.zeros((len(between), len(order.steps)), dtype=np.int64)
        has_messages = np.zeros(after.shape, dtype=np.bool_)
        for step in range(len(order.steps)):
            sent_ns, received_ns, over_ns = messages
            begin = np.searchsorted(sent_ns, order.end_ns[edges.producers[between], step], side="left")
            end = np.searchsorted(sent_ns, _next_end_ns(order, edges.producers[between], step), side="left")
            sent = np.flatnonzero(end > begin)
            for i in sent.tolist():
                rows = slice(begin[i], end[i])
                posted_ns[between[i], step] = received_ns[rows].max()
                ended_ns[between[i], step] = min(over_ns[rows].max(), ended_ns[between[i], step])
            has_messages[sent, step] = True
            number = np.searchsorted(order.end_ns[on_receiver, step], posted_ns[between, step], side="right") - 1
            after[:, step] = np.where(number >= 0, on_receiver[np.maximum(number, 0)], ABSENT)
        seen = has_messages.any(axis=1)
        previous = edges.previous[between]
        typical = np.median(np.where(has_messages, after, previous[:, None]), axis=1).astype(np.int64)
        posted_after[between[seen]] = np.minimum(typical, previous)[seen]
    posted_by_ns = np.where((posted_after == ABSENT)[:, None], np.iinfo(np.int64).min, order.end_ns[posted_after])
    begin_ns = np.maximum(order.end_ns[edges.producers], posted_by_ns)
    return Transfers(
        posted_after=posted_after,
        took_ns=np.maximum(ended_ns - begin_ns, 0),
        visible=begin_ns >= before_ns,
    )


def _messages(run: Run, ranks: Sequence[int]) -> list[tuple[int, int, tuple[Int64, Int64, Int64]]]:
    """Return the messages between each two ranks, in order of their sends.

    Each entry is the source, the destination, and three times on the run's clock: when the messages were sent, when
    their receives were posted, and when these ended.
    """
    result = []
    summaries = {summary.rank: summary for summary in run.ranks}
    clocks = {clock.rank: clock for clock in run.clocks}
    matched = run.messages.rows(np.isin(run.messages.source, ranks) & np.isin(run.messages.destination, ranks))
    pairs = np.unique(np.stack((matched.source, matched.destination)), axis=1).T.tolist()
    for source, destination in pairs:
        rows = np.flatnonzero((matched.source == source) & (matched.destination == destination))
        sender, receiver = summaries[source], summaries[destination]
        over_ns = receiver.messages.end_ns[matched.recv[rows]]
        rows, over_ns = rows[over_ns != ABSENT], over_ns[over_ns != ABSENT]
        sent_ns = clocks[source].to_run(sender.messages.ready_ns[matched.send[rows]])
        posted_ns = clocks[destination].to_run(receiver.messages.ready_ns[matched.recv[rows]])
        order = np.argsort(sent_ns, kind="stable")
        over_ns = clocks[destination].to_run(over_ns)
        result.append((source, destination, (sent_ns[order], posted_ns[order], over_ns[order])))
    return result


def _next_end_ns(order: ActionOrder, actions: Int64, step: int) -> Int64:
    """Return when the next action on its rank ends, for each action; the largest time for the last one."""
    following = np.minimum(actions + 1, len(order.rank) - 1)
    last = (actions == following) | (order.rank[following] != order.rank[actions])
    return np.where(last, np.iinfo(np.int64).max, order.end_ns[following, step])
