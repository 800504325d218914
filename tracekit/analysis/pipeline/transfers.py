"""What a pipeline's ranks send each other: which action waits for which, and when each transfer could begin and ended.

Comes in: a run and a `Program` of one of its pipelines. Goes out: `Transfers`.

A forward waits for that of the stage before it, a backward for that of the stage behind it. Where both are on one rank
nothing is sent. A transfer begins when the action that makes it has ended and the receive was posted, and ends with the
receive. The messages that were sent after an action, before the next one on its rank ended, are the transfer. Without
messages (another tool's trace) the receive counts as posted after the action before the consumer, and the transfer as
over when the consumer begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.pipeline.steps import Program
from tracekit.model.events import ABSENT, Bool, Int32, Int64
from tracekit.model.run import Run
from tracekit.model.spans import ACTION_KINDS

__all__ = ["Edges", "Transfers", "edges_between_ranks", "transfers_of"]

_F, _B, _I = (ACTION_KINDS.index(kind) for kind in ("F", "B", "I"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Edges:
    """Actions that wait for one of another rank, int64 [e] each: consumers and the producers that these wait for;
    previous: the action before each consumer on its rank, or -1.
    """

    producers: Int64
    consumers: Int64
    previous: Int64

    def __len__(self) -> int:
        return len(self.producers)


@dataclass(frozen=True, kw_only=True, eq=False)
class Transfers:
    """posted_after: int64 [e], the action of the consumer's rank behind which the receive is posted, or -1. took_ns:
    int64 [e, k], from when the transfer could begin to its end. visible: bool [e, k], whether the consumer's rank was
    idle all that time; where it was not, the transfer took at most this.
    """

    posted_after: Int64
    took_ns: Int64
    visible: Bool


def edges_between_ranks(rank: Int64, kind: Int32, stage: Int32, microbatch: Int32) -> Edges:
    """Of n actions, rank by rank in the order in which each runs them: int [n] each."""
    # A schedule that runs several times a step has each action as often: the n-th waits for the n-th.
    times: Counter[tuple[int, int, int]] = Counter()
    place: dict[tuple[int, int, int, int], int] = {}
    for i, key in enumerate(zip(kind.tolist(), stage.tolist(), microbatch.tolist(), strict=True)):
        place[*key, times[key]] = i
        times[key] += 1
    edges = []
    for (what, where, number, time), i in place.items():
        waits_for: tuple[tuple[int, int], ...] = ()
        if what == _F:
            waits_for = ((_F, where - 1),)
        elif what in (_B, _I):
            waits_for = ((_B, where + 1), (_I, where + 1))
        found = (place.get((*source, number, time)) for source in waits_for)
        edges += [(source, i) for source in found if source is not None and rank[source] != rank[i]]
    producers, consumers = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    first = np.diff(rank, prepend=ABSENT) != 0
    return Edges(producers=producers, consumers=consumers, previous=np.where(first[consumers], ABSENT, consumers - 1))


def transfers_of(run: Run, ranks: Sequence[int], program: Program, edges: Edges) -> Transfers:
    """`ranks`: those that the program's places stand for."""
    before_ns = np.where((edges.previous == ABSENT)[:, None], np.iinfo(np.int64).min, program.end_ns[edges.previous])
    posted_ns = before_ns.copy()
    ended_ns = program.start_ns[edges.consumers].copy()
    posted_after = edges.previous.copy()
    place = {rank: number for number, rank in enumerate(ranks)}
    for source, destination, messages in _messages(run, ranks):
        sender, receiver = place[source], place[destination]
        own = np.flatnonzero((program.rank[edges.producers] == sender) & (program.rank[edges.consumers] == receiver))
        on_receiver = np.flatnonzero(program.rank == receiver)
        behind = np.zeros((len(own), len(program.steps)), dtype=np.int64)
        found = np.zeros(behind.shape, dtype=np.bool_)
        for step in range(len(program.steps)):
            sent_ns, received_ns, over_ns = messages
            begin = np.searchsorted(sent_ns, program.end_ns[edges.producers[own], step], side="left")
            end = np.searchsorted(sent_ns, _next_end_ns(program, edges.producers[own], step), side="left")
            there = np.flatnonzero(end > begin)
            for i in there.tolist():
                rows = slice(begin[i], end[i])
                posted_ns[own[i], step] = received_ns[rows].max()
                ended_ns[own[i], step] = min(over_ns[rows].max(), ended_ns[own[i], step])
            found[there, step] = True
            number = np.searchsorted(program.end_ns[on_receiver, step], posted_ns[own, step], side="right") - 1
            behind[:, step] = np.where(number >= 0, on_receiver[np.maximum(number, 0)], ABSENT)
        seen = found.any(axis=1)
        typical = np.median(np.where(found, behind, edges.previous[own][:, None]), axis=1).astype(np.int64)
        posted_after[own[seen]] = np.minimum(typical, edges.previous[own])[seen]
    posted_by_ns = np.where((posted_after == ABSENT)[:, None], np.iinfo(np.int64).min, program.end_ns[posted_after])
    begin_ns = np.maximum(program.end_ns[edges.producers], posted_by_ns)
    return Transfers(
        posted_after=posted_after,
        took_ns=np.maximum(ended_ns - begin_ns, 0),
        visible=begin_ns >= before_ns,
    )


def _messages(run: Run, ranks: Sequence[int]) -> list[tuple[int, int, tuple[Int64, Int64, Int64]]]:
    """Between each two of the ranks in order of their sends: when they were sent, when their receives were posted, and
    when these ended, on the run's clock.
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


def _next_end_ns(program: Program, actions: Int64, step: int) -> Int64:
    """When the action behind each on its rank ends; of the last one never."""
    following = np.minimum(actions + 1, len(program.rank) - 1)
    last = (actions == following) | (program.rank[following] != program.rank[actions])
    return np.where(last, np.iinfo(np.int64).max, program.end_ns[following, step])
