"""Finds pipelines whose stages no span names, in the messages of all ranks.

Ranks are a pipeline if every microbatch can be followed through all stages (`chains`). Where messages or ranks are
missing, the messages that are there may still show a line:

A message is a forward message if it was sent in or after a forward action and received in or before one. Ranks are a
pipeline if those messages lead from one to the next along a line. That leaves out rings, such as context parallelism,
and stars, such as results that are sent to one rank. A rank's stage is its place in the line. A rank that gets results
of forwards and returns what backwards need is a stage, whether its own passes are known or not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from tracekit.analysis.communication.parts import COMMUNICATION
from tracekit.analysis.pipeline.layout.chains import StagedActions, follow_microbatches
from tracekit.analysis.pipeline.layout.inferred import schedule_of_actions
from tracekit.analysis.pipeline.parts import ACTIONS, Actions
from tracekit.analysis.stats.connected_components import connected_components
from tracekit.model.communication import GroupKey
from tracekit.model.events import ABSENT
from tracekit.model.messages import MatchedMessages, Messages
from tracekit.model.metadata import PipelineLayout
from tracekit.model.spans import ACTION_KINDS
from tracekit.model.summary import PipelineMembership, RankSummary

_FORWARD, _BACKWARD = ACTION_KINDS.index("F"), ACTION_KINDS.index("B")
Edge = tuple[int, int]

__all__ = ["find_lines", "with_manual_pipelines"]


def with_manual_pipelines(ranks: Sequence[RankSummary], matched: MatchedMessages) -> tuple[RankSummary, ...]:
    """Return the summaries; those in a pipeline get stages, a layout, the strategy `pp` and its groups' parallelism.

    Actions of the other ranks are dropped, if the capture described no pipeline.
    """
    candidates = {s.rank: s for s in ranks if s.pipeline is None and len(s[ACTIONS])}
    if not candidates:
        return tuple(ranks)
    neighbours = {rank: _neighbours(summary.messages) for rank, summary in candidates.items()}
    no_stages = frozenset(s.rank for s in ranks).difference(candidates, *neighbours.values())
    forward, groups = _forward_edges(candidates, no_stages, matched)
    staged: dict[int, StagedActions] = {}
    claimed: set[GroupKey] = set()
    pairs = zip(matched.source.tolist(), matched.destination.tolist(), strict=True)
    for together in map(frozenset, connected_components(pairs)):
        if together <= candidates.keys() and all(neighbours[rank] <= together for rank in together):
            staged |= follow_microbatches([candidates[rank] for rank in sorted(together)], matched) or {}
            claimed |= {group for edge in groups if set(edge) <= together & staged.keys() for group in groups[edge]}
    for line in find_lines({edge for edge in forward if not set(edge) & staged.keys()}):
        staged |= {rank: _one_stage(line, candidates[rank][ACTIONS], rank) for rank in line if rank in candidates}
        claimed |= {group for edge in pairwise(line) for group in groups[edge]}
    schedules = {each.ranks: _schedule(each.ranks, candidates, staged) for each in staged.values()}
    result = []
    for summary in ranks:
        named = _with_parallelism(summary, claimed)
        if summary.rank in staged:
            named = _with_stages(named, staged[summary.rank], schedules[staged[summary.rank].ranks])
        elif summary.rank in candidates:
            named = named.with_part(ACTIONS, Actions.empty())
        result.append(named)
    return tuple(result)


def _neighbours(messages: Messages) -> set[int]:
    """Return the ranks with which a rank exchanges what a stage of a pipeline exchanges with the next or the last one.

    That is the results of its forwards against inputs of its backwards, or the other way round.
    """

    def peers(is_send: bool, kind: int) -> set[int]:
        of_kind = (messages.after if is_send else messages.before) == kind
        return set(messages.peer[of_kind & (messages.is_send == is_send)].tolist()) - {ABSENT}

    following = peers(True, _FORWARD) & peers(False, _BACKWARD)
    preceding = peers(False, _FORWARD) & peers(True, _BACKWARD)
    return following | preceding


def _one_stage(line: Sequence[int], actions: Actions, rank: int) -> StagedActions:
    return StagedActions(
        ranks=tuple(line),
        stages=len(line),
        stage=np.full(len(actions), line.index(rank), dtype=np.int32),
        microbatch=actions.microbatch,
    )


def _schedule(ranks: Sequence[int], candidates: Mapping[int, RankSummary], staged: Mapping[int, StagedActions]) -> str:
    """Return the schedule that the order of a pipeline's actions shows; `manual` if the capture saw a loop of its own.

    The capture knows the schedules of torch, and this is none of them. So the loop was written by hand.
    """
    members = [candidates[rank] for rank in ranks if rank in candidates]
    if any(summary.run_id is not None for summary in members):
        return "manual"
    if len(members) < len(ranks):
        return "unknown"
    return schedule_of_actions(
        [
            replace(candidates[rank][ACTIONS], stage=staged[rank].stage, microbatch=staged[rank].microbatch)
            for rank in ranks
        ]
    )


def _with_stages(summary: RankSummary, staged: StagedActions, schedule: str) -> RankSummary:
    actions = replace(summary[ACTIONS], stage=staged.stage, microbatch=staged.microbatch)
    stage_ids = np.unique(actions.stage).tolist()
    forward = actions.kind == _FORWARD
    layout = PipelineLayout(
        schedule=schedule,
        stages=staged.stages,
        virtual_stages=len(stage_ids),
        microbatches=int(actions.microbatch[forward].max(initial=-1)) + 1,
        stage_ids=stage_ids,
    )
    inferred = summary.run_id is None
    return replace(
        summary.with_part(ACTIONS, actions),
        strategies=tuple(sorted({*summary.strategies, "pp"})),
        strategies_inferred=summary.strategies_inferred and (inferred or bool(summary.strategies)),
        pipeline=PipelineMembership(layout=layout, ranks=tuple(sorted(staged.ranks)), inferred=inferred),
    )


def find_lines(edges: Collection[Edge]) -> list[tuple[int, ...]]:
    """Return the lines that edges form, each as its ranks from the first to the last.

    Connected ranks form a line if there is a path through all of them. Edges may skip ranks on the way.
    """
    successors: dict[int, set[int]] = defaultdict(set)
    for source, destination in edges:
        successors[source].add(destination)
    lines = []
    for ranks in connected_components(edges):
        line = _line(ranks, successors)
        if line is not None:
            lines.append(line)
    return lines


def _line(ranks: Sequence[int], successors: Mapping[int, set[int]]) -> tuple[int, ...] | None:
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
    candidates: Mapping[int, RankSummary], no_stages: Collection[int], matched: MatchedMessages
) -> tuple[set[Edge], dict[Edge, set[GroupKey]]]:
    """Return pairs of ranks that exchange mostly forward messages, and the groups of these messages.

    Of a message whose counterpart is not known only this rank's side is. `no_stages` are ranks of which no pass is
    known, and that are no stages.
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

    between = matched.rows(np.isin(matched.source, [*candidates]) & np.isin(matched.destination, [*candidates]))
    for source, destination, send, recv in zip(
        between.source.tolist(), between.destination.tolist(), between.send.tolist(), between.recv.tolist(), strict=True
    ):
        sender, receiver = candidates[source], candidates[destination]
        kinds = int(sender.messages.after[send]), int(receiver.messages.before[recv])
        vote((source, destination), *kinds, _group(sender, send))
    for rank, summary in candidates.items():
        messages = summary.messages
        voted = np.concatenate((between.send[between.source == rank], between.recv[between.destination == rank]))
        for row in np.setdiff1d(np.arange(len(messages)), voted).tolist():
            peer, is_send = int(messages.peer[row]), bool(messages.is_send[row])
            known_kind = ABSENT if peer in no_stages else int(messages.after[row] if is_send else messages.before[row])
            vote((rank, peer) if is_send else (peer, rank), known_kind, known_kind, _group(summary, row))
    return {edge for edge, counts in votes.items() if counts[True] > counts[False]}, groups


def _group(summary: RankSummary, row: int) -> GroupKey | None:
    number = int(summary.messages.group[row])
    return None if number == ABSENT else summary.groups[number]


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
