"""Finds pipelines that training wrote by hand, with send and recv, in the messages of all ranks.

A message is a forward message if it was sent in or after a forward action and received in or before one. Ranks are a
pipeline if those messages lead from one to the next along a line. That leaves out rings, such as context parallelism,
and stars, such as results that are sent to one rank. A rank's stage is its place in the line.
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

__all__ = ["find_lines", "with_manual_pipelines"]


def with_manual_pipelines(ranks: Sequence[RankSummary], matched: MatchedMessages) -> tuple[RankSummary, ...]:
    """Return the summaries; those in a pipeline get stages, a layout, the strategy `pp` and its groups' parallelism.

    Actions of the other ranks are dropped, if the capture described no pipeline.
    """
    candidates = [s for s in ranks if s.pipeline is None and len(s[ACTIONS])]
    if not candidates:
        return tuple(ranks)
    forward, groups = _forward_edges({s.rank: s for s in candidates}, matched)
    lines = find_lines(forward)
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


def find_lines(edges: Collection[Edge]) -> list[tuple[int, ...]]:
    """Return the lines that edges form, each as its ranks from the first to the last.

    Connected ranks form a line if there is a path through all of them. Edges may skip ranks on the way.
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
    """Return the order in which each rank leads to the next; None if there is a way back, or no such order."""
    incoming = Counter(destination for rank in ranks for destination in successors.get(rank, ()))
    line: list[int] = []
    ready = [rank for rank in ranks if not incoming[rank]]
    while len(ready) == 1:  # two at a time would be side by side
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
    """Return pairs of ranks that exchange mostly forward messages, and the groups of these messages.

    Of a message to or from a rank whose trace is missing only this rank's side is known.
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
            sender, receiver = candidates[source].messages, candidates[destination].messages
            sent, received = int(sender.after[send]), int(receiver.before[recv])
            vote((source, destination), sent, received, _group(candidates[source], send))
    for rank, summary in candidates.items():
        messages = summary.messages
        for row in np.flatnonzero(~np.isin(messages.peer, list(candidates))).tolist():
            peer, is_send = int(messages.peer[row]), bool(messages.is_send[row])
            known_kind = int(messages.after[row] if is_send else messages.before[row])
            vote((rank, peer) if is_send else (peer, rank), known_kind, known_kind, _group(summary, row))
    return {edge for edge, counts in votes.items() if counts[True] > counts[False]}, groups


def _group(summary: RankSummary, row: int) -> GroupKey | None:
    number = int(summary.messages.group[row])
    return None if number == ABSENT else summary.groups[number]


def _microbatches(summary: RankSummary) -> int:
    """Return the number of forwards in the step that has the most."""
    forward = summary[ACTIONS].rows(summary[ACTIONS].kind == _FORWARD)
    return int(forward.microbatch.max(initial=-1)) + 1


def _with_parallelism(summary: RankSummary, claimed: set[GroupKey]) -> RankSummary:
    """Return the summary with pipeline parallelism for groups that carry activations and have no parallelism yet."""

    def with_pp(group: GroupKey) -> GroupKey:
        return replace(group, parallelism="pp") if group.parallelism is None and group in claimed else group

    if not claimed:
        return summary
    renamed = replace(summary, groups=tuple(map(with_pp, summary.groups)))
    if COMMUNICATION.name not in summary.parts:  # no wanted section reads it
        return renamed
    rows = (row if row.group is None else replace(row, group=with_pp(row.group)) for row in summary[COMMUNICATION])
    return renamed.with_part(COMMUNICATION, tuple(rows))
