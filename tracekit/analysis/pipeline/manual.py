"""Pipelines that training wrote by hand, with send and recv: found in the messages of all ranks.

Comes in: summaries whose actions have no stage yet, and the messages between them. Goes out: summaries with stages, or
without these actions.

A message is of the forward kind if it was sent in or after an F and received in or before an F. Ranks are a pipeline
if those messages lead from one to the next along a line: that leaves out rings (context parallelism: they lead back)
and stars (results sent to one rank). The stage is the place in that line.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from tracekit.analysis.communication.parts import COMMUNICATION
from tracekit.analysis.pipeline.parts import ACTIONS, Actions
from tracekit.model.communication import GroupKey
from tracekit.model.events import ABSENT
from tracekit.model.messages import MatchedMessages
from tracekit.model.metadata import PipelineLayout
from tracekit.model.spans import ACTION_KINDS
from tracekit.model.summary import PipelineMembership, RankSummary

_FORWARD = ACTION_KINDS.index("F")
Edge = tuple[int, int]

__all__ = ["lines_of", "with_manual_pipelines"]


def with_manual_pipelines(ranks: Sequence[RankSummary], matched: MatchedMessages) -> tuple[RankSummary, ...]:
    """The summaries, those of stages with actions, layout, strategy `pp` and the parallelism of their group."""
    candidates = [s for s in ranks if s.pipeline is None and len(s[ACTIONS])]
    if not candidates:
        return tuple(ranks)
    forward, groups = _forward_edges({s.rank: s for s in candidates}, matched)
    lines = lines_of(forward)
    line_of = {rank: line for line in lines for rank in line}
    claimed = {group for line in lines for edge in pairwise(line) for group in groups[edge]}
    microbatches = {
        line: max((_microbatches(s) for s in candidates if s.rank in line), default=0) for line in line_of.values()
    }
    candidate_ranks = {summary.rank for summary in candidates}
    result = []
    for summary in ranks:
        named = _with_parallelism(summary, claimed)
        line = line_of.get(summary.rank)
        if summary.rank in candidate_ranks and line is not None:
            stage = line.index(summary.rank)
            layout = PipelineLayout(
                schedule="manual",
                stages=len(line),
                virtual_stages=1,
                microbatches=microbatches[line],
                stage_ids=[stage],
            )
            actions = replace(named[ACTIONS], stage=np.full(len(named[ACTIONS]), stage, dtype=np.int32))
            named = replace(
                named.with_part(ACTIONS, actions),
                strategies=tuple(sorted({*named.strategies, "pp"})),
                strategies_inferred=named.strategies_inferred and bool(named.strategies),
                pipeline=PipelineMembership(layout=layout, ranks=tuple(sorted(line))),
            )
        elif summary.rank in candidate_ranks:
            named = named.with_part(ACTIONS, Actions.empty())
        result.append(named)
    return tuple(result)


def lines_of(edges: Collection[Edge]) -> list[tuple[int, ...]]:
    """Each group of ranks that the edges connect, if they lead along a line through all of it (and perhaps skip some
    on the way): the ranks from its beginning to its end.
    """
    successors: dict[int, set[int]] = defaultdict(set)
    connected: dict[int, set[int]] = {}
    for source, destination in edges:
        successors[source].add(destination)
        together = connected.get(source, {source}) | connected.get(destination, {destination})
        connected.update(dict.fromkeys(together, together))
    lines = []
    for ranks in {min(together): together for together in connected.values()}.values():
        line = _line(ranks, successors)
        if line is not None:
            lines.append(line)
    return lines


def _line(ranks: set[int], successors: Mapping[int, set[int]]) -> tuple[int, ...] | None:
    """The order in which each rank but the last leads to the next; None if there is a way back, or no such order."""
    incoming = Counter(destination for rank in ranks for destination in successors.get(rank, ()))
    line: list[int] = []
    ready = [rank for rank in ranks if not incoming[rank]]
    while len(ready) == 1:  # two at once stand side by side
        rank = ready.pop()
        if line and rank not in successors.get(line[-1], ()):
            return None
        line.append(rank)
        for destination in successors.get(rank, ()):
            incoming[destination] -= 1
            if not incoming[destination]:
                ready.append(destination)
    return tuple(line) if len(line) == len(ranks) else None


def _forward_edges(
    candidates: Mapping[int, RankSummary], matched: MatchedMessages
) -> tuple[set[Edge], dict[Edge, set[GroupKey]]]:
    """Pairs of ranks whose messages are mostly of the forward kind, and the groups these went through.

    Of messages to a rank whose trace is missing only this side is known.
    """
    votes: dict[Edge, Counter[bool]] = defaultdict(Counter)
    groups: dict[Edge, set[GroupKey]] = defaultdict(set)

    def vote(edge: Edge, sent: int, received: int, group: GroupKey | None) -> None:
        if ABSENT in (sent, received):
            votes[edge][False] += 1
            return
        forward = sent == received == _FORWARD
        votes[edge][forward] += 1
        if forward and group is not None:
            groups[edge].add(group)

    for source, destination, send, recv in zip(
        matched.source.tolist(),
        matched.destination.tolist(),
        matched.send.tolist(),
        matched.recv.tolist(),
        strict=True,
    ):
        if source in candidates and destination in candidates:
            one, other = candidates[source], candidates[destination]
            sent, received = int(one.messages.after[send]), int(other.messages.before[recv])
            vote((source, destination), sent, received, _group(one, send))
    for rank, summary in candidates.items():
        own = summary.messages
        for row in np.flatnonzero(~np.isin(own.peer, list(candidates))).tolist():
            peer, seen = int(own.peer[row]), int(own.after[row] if own.is_send[row] else own.before[row])
            vote((rank, peer) if own.is_send[row] else (peer, rank), seen, seen, _group(summary, row))
    return {edge for edge, counts in votes.items() if counts[True] > counts[False]}, groups


def _group(summary: RankSummary, row: int) -> GroupKey | None:
    number = int(summary.messages.group[row])
    return None if number == ABSENT else summary.groups[number]


def _microbatches(summary: RankSummary) -> int:
    """Forwards a step, the most of its steps."""
    forward = summary[ACTIONS].rows(summary[ACTIONS].kind == _FORWARD)
    return int(forward.microbatch.max(initial=-1)) + 1


def _with_parallelism(summary: RankSummary, claimed: set[GroupKey]) -> RankSummary:
    """Groups that carry a pipeline's activations are of pipeline parallelism, unless they are known for another."""

    def named(group: GroupKey) -> GroupKey:
        return replace(group, parallelism="pp") if group.parallelism is None and group in claimed else group

    if not claimed:
        return summary
    renamed = replace(summary, groups=tuple(map(named, summary.groups)))
    if COMMUNICATION.name not in summary.parts:  # no wanted section reads it
        return renamed
    rows = (row if row.group is None else replace(row, group=named(row.group)) for row in summary[COMMUNICATION])
    return renamed.with_part(COMMUNICATION, tuple(rows))
