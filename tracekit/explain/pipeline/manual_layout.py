"""Which ranks form a pipeline, and which stage each holds, in recordings without tracekit's metadata.

Spans that name their stages tell the layout of a process group. Its ranks are one pipeline if they hold each stage
once. Without such groups all ranks together are one, if they hold each stage once.

Where no span names a stage, the messages of all ranks tell the layout. Ranks are a pipeline if every microbatch can be
followed from rank to rank through all stages. A message leads from the action before its send to the action that waits
for its receive, the next one of the same kind. So forwards form chains, one a microbatch: the position of a forward in
its chain is its stage. The chains of backwards lead from the last stage to the first. Rings, such as context
parallelism, have no first action. A rank may have several stages.

Where messages or ranks are missing, the messages that are there may still show a line: a message is a forward message
if it was sent in or after a forward action and received in or before one. Ranks are a pipeline if those messages lead
from one to the next along a line. That leaves out rings, and stars, such as results that are sent to one rank. A rank's
stage is its position in the line. A rank that gets results of forwards and returns what backwards need is a stage,
whether its own passes are known or not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tracekit.explain.communication.tables import COMMUNICATION_SUMS
from tracekit.explain.pipeline.schedules import Order, schedule_of_order
from tracekit.explain.pipeline.tables import ACTIONS, Actions
from tracekit.model.communication import GroupKey, MatchedMessages, Messages
from tracekit.model.events import ABSENT, Bool, Int32, Int64
from tracekit.model.metadata import PipelineLayout
from tracekit.model.spans import ACTION_KINDS
from tracekit.model.summary import PipelineMembership, RankSummary
from tracekit.stats.connected_components import connected_components

_FORWARD, _BACKWARD = ACTION_KINDS.index("F"), ACTION_KINDS.index("B")
Edge = tuple[int, int]
_ActionRow = tuple[int, int]  # a rank, and a row of its actions


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
    if COMMUNICATION_SUMS.name not in summary.parts:  # no wanted section reads it
        return renamed
    rows = (row if row.group is None else replace(row, group=with_pp(row.group)) for row in summary[COMMUNICATION_SUMS])
    return renamed.with_part(COMMUNICATION_SUMS, tuple(rows))


@dataclass(frozen=True, kw_only=True, eq=False)
class StagedActions:
    """Which stages a rank of a pipeline has.

    Attributes:
        ranks: of the pipeline, by their first stage.
        stages: how many stages the pipeline has.
        stage: of each action, int32 [n].
        microbatch: of each action, int32 [n].
    """

    ranks: tuple[int, ...]
    stages: int
    stage: Int32
    microbatch: Int32


def follow_microbatches(members: Sequence[RankSummary], matched: MatchedMessages) -> dict[int, StagedActions] | None:
    """Return the stages of the actions of connected ranks, by rank; None if they are no pipeline.

    All chains must be equally long, each stage must be on one rank, and have as many actions of a kind in a step as any
    other.
    """
    actions = {summary.rank: summary[ACTIONS] for summary in members}
    following = _following_actions({summary.rank: summary for summary in members}, matched)
    chains = _chains({(rank, row) for rank, of_rank in actions.items() for row in range(len(of_rank))}, following)
    if chains is None:
        return None
    stages = max(len(chain) for chain in chains)
    stage = {rank: np.full(len(of_rank), ABSENT, dtype=np.int32) for rank, of_rank in actions.items()}
    rank_of_stage: dict[int, int] = {}
    for chain in chains:
        backward = actions[chain[0][0]].kind[chain[0][1]] == _BACKWARD
        for index, (rank, row) in enumerate(chain):
            number = stages - 1 - index if backward else index
            if len(chain) != stages or rank_of_stage.setdefault(number, rank) != rank:
                return None
            stage[rank][row] = number
    if stages < 2 or not _is_even(actions, stage):
        return None
    ranks = tuple(sorted(actions, key=lambda rank: int(stage[rank].min())))
    return {
        rank: StagedActions(
            ranks=ranks, stages=stages, stage=stage[rank], microbatch=_microbatches(of_rank, stage[rank])
        )
        for rank, of_rank in actions.items()
    }


def _following_actions(
    members: Mapping[int, RankSummary], matched: MatchedMessages
) -> dict[_ActionRow, set[_ActionRow]]:
    """Return to which actions the messages of an action lead."""
    of_members = matched.rows(np.isin(matched.source, list(members)) & np.isin(matched.destination, list(members)))
    received: dict[int, list[tuple[int, _ActionRow]]] = defaultdict(list)  # by destination: the receive, who sent it
    for source in np.unique(of_members.source).tolist():
        sent = of_members.rows(of_members.source == source)
        producers = _producers(members[source][ACTIONS], members[source].messages)[sent.send]
        for destination, recv, producer in zip(
            sent.destination.tolist(), sent.recv.tolist(), producers.tolist(), strict=True
        ):
            if producer >= 0:
                received[destination].append((recv, (source, producer)))
    following: dict[_ActionRow, set[_ActionRow]] = defaultdict(set)
    for destination, arrivals in received.items():
        actions, messages = members[destination][ACTIONS], members[destination].messages
        for kind in (_FORWARD, _BACKWARD):
            rows = np.flatnonzero(actions.kind == kind)
            since = np.searchsorted(actions.issue_ns[rows], messages.issue_ns, side="left").tolist()
            index, latest = -1, None
            for recv, producer in sorted(arrivals):
                if members[producer[0]][ACTIONS].kind[producer[1]] != kind:
                    continue
                if producer != latest:  # else it is another tensor of the same action
                    index, latest = max(since[recv], index + 1), producer
                if index < len(rows):
                    following[producer].add((destination, int(rows[index])))
    return following


def _producers(actions: Actions, messages: Messages) -> Int64:
    """Return the action whose result each message of a rank sends, int64 [n] rows of its actions, or -1.

    It is the last action of its kind before the message: a loop may run a forward and a backward and then send the
    results of both together. What is sent before the first backward of a step is the result of a forward, and so is all
    that is sent to the same ranks, if no backward sends there. Where both do, results go in the order of their actions.
    If only one of a forward and a backward is sent, it is the forward on the rank that has the first stage, from which
    no backward goes on, and the backward elsewhere.
    """
    last = np.searchsorted(actions.issue_ns, messages.issue_ns, side="left") - 1
    known = messages.is_send & (last >= 0)
    known[known] = actions.step[last[known]] == messages.step[known]
    rows = np.flatnonzero(known)
    last, peer = last[rows], messages.peer[rows]
    backward = actions.kind == _BACKWARD
    forward_peers = set(peer[_backwards_since(backward, actions.step)[last] == 0].tolist())
    both = forward_peers & set(peer[_backwards_since(backward, np.cumsum(~backward))[last] > 1].tolist())
    index = np.arange(len(actions))
    last_forward, last_backward = (np.maximum.accumulate(np.where(of, index, ABSENT)) for of in (~backward, backward))
    result = np.full(len(messages), ABSENT, dtype=np.int64)
    result[rows] = np.where(np.isin(peer, list(forward_peers)), last_forward[last], last_backward[last])
    in_order = np.flatnonzero(np.isin(peer, list(both)))
    _, first, count = np.unique(last[in_order], return_index=True, return_counts=True)
    number = np.arange(len(in_order)) - np.repeat(first, count)
    before = last[in_order] - np.repeat(count, count) + 1 + number
    before -= (np.repeat(count, count) == 1) & _follows_forward_without_message(actions, messages)[last[in_order]]
    result[rows[in_order]] = np.maximum(before, 0)
    return result


def _follows_forward_without_message(actions: Actions, messages: Messages) -> Bool:
    """Return a mask [n] of the backwards that follow a forward with no message issued between.

    It is False throughout on a rank that receives before its first action.
    """
    messages_before = np.searchsorted(messages.issue_ns, actions.issue_ns, side="left")
    received_ns = messages.issue_ns[~messages.is_send & (messages.step == actions.step[0])]
    if len(received_ns) and received_ns[0] < actions.issue_ns[0]:
        return np.zeros(len(actions), dtype=np.bool_)
    follows_forward = (actions.kind == _BACKWARD) & (np.roll(actions.kind, 1) == _FORWARD)
    result = follows_forward & (np.roll(messages_before, 1) == messages_before)
    result[0] = False
    return np.asarray(result)


def _backwards_since(backward: Bool, period: Int64) -> Int64:
    """Return how many backwards there were up to each action since its period began, int64 [n].

    backward: bool [n]. period: int64 [n], ascending.
    """
    total = np.cumsum(backward)
    new = np.diff(period, prepend=period[:1] - 1) != 0
    return np.asarray(total - np.maximum.accumulate(np.where(new, total - backward, 0)))


def _chains(actions: set[_ActionRow], following: Mapping[_ActionRow, set[_ActionRow]]) -> list[list[_ActionRow]] | None:
    """Return the chains of actions from each action that nothing leads to; None if they branch, meet or go around."""
    reached = [action for actions_after in following.values() for action in actions_after]
    if any(len(after) > 1 for after in following.values()) or len(set(reached)) < len(reached):
        return None
    chains = []
    for action in sorted(actions - set(reached)):
        chain = [action]
        while after := following.get(chain[-1]):
            chain.append(next(iter(after)))
        chains.append(chain)
    return chains if sum(map(len, chains)) == len(actions) and chains else None


def _is_even(actions: Mapping[int, Actions], stage: Mapping[int, Int32]) -> bool:
    """Return whether every stage has as many actions of a kind in a step as any other, and backwards if any has."""
    counts: dict[tuple[int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for rank, of_rank in actions.items():
        for step, kind, number in zip(of_rank.step.tolist(), of_rank.kind.tolist(), stage[rank].tolist(), strict=True):
            counts[step, kind][number] += 1
    stages = {number for of_stages in counts.values() for number in of_stages}
    return all(set(of_stages) == stages and len(set(of_stages.values())) == 1 for of_stages in counts.values())


def _microbatches(actions: Actions, stage: Int32) -> Int32:
    """Return the number of each action among those of its step, kind and stage."""
    keys = np.stack((actions.step, actions.kind, stage))
    order = np.lexsort((np.arange(len(actions)), *keys))
    ordered = keys[:, order]
    first = np.append(True, (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)) if len(order) else np.empty(0, np.bool_)
    begin = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    result = np.empty(len(order), dtype=np.int32)
    result[order] = np.arange(len(order)) - begin
    return result


def with_inferred_pipelines(ranks: Sequence[RankSummary], groups: Sequence[GroupKey]) -> tuple[RankSummary, ...]:
    """Return the summaries with inferred layouts: stages, schedule and ranks of each pipeline.

    Summaries stay as they are if the capture described the pipeline, or if there is none. groups: those of the run.
    """
    unknown = {s.rank: s for s in ranks if s.pipeline is None and (s[ACTIONS].stage != ABSENT).any()}
    if not unknown:
        return tuple(ranks)
    stages = {rank: tuple(np.unique(s[ACTIONS].stage).tolist()) for rank, s in unknown.items()}
    count = 1 + max(stage for of_rank in stages.values() for stage in of_rank)
    pipelines = _pipelines(stages, groups, count)
    schedules = {
        ranks: schedule_of_actions([unknown[rank][ACTIONS] for rank in ranks]) for ranks in set(pipelines.values())
    }
    microbatches = 1 + max(int(s[ACTIONS].microbatch.max()) for s in unknown.values())
    result = []
    for summary in ranks:
        if summary.rank in unknown:
            together = pipelines.get(summary.rank, ())
            layout = PipelineLayout(
                schedule=schedules.get(together, "unknown"),
                stages=count,
                virtual_stages=len(stages[summary.rank]),
                microbatches=microbatches,
                stage_ids=list(stages[summary.rank]),
            )
            membership = PipelineMembership(layout=layout, ranks=together, inferred=True)
            summary = replace(summary, pipeline=membership)
        result.append(summary)
    return tuple(result)


def _pipelines(
    stages: Mapping[int, tuple[int, ...]], groups: Sequence[GroupKey], count: int
) -> dict[int, tuple[int, ...]]:
    """Return the ranks of each rank's pipeline, ascending; empty where groups do not tell."""
    candidates = [tuple(sorted(group.ranks)) for group in groups] or []
    whole = [ranks for ranks in dict.fromkeys([*candidates, tuple(sorted(stages))]) if _holds_all(ranks, stages, count)]
    result: dict[int, tuple[int, ...]] = {}
    for ranks in whole:
        if any(result.get(rank, ranks) != ranks for rank in ranks):
            return {}  # a rank cannot be in two pipelines
        result.update(dict.fromkeys(ranks, ranks))
    return result


def _holds_all(ranks: Collection[int], stages: Mapping[int, tuple[int, ...]], count: int) -> bool:
    """Return whether the ranks hold each of `count` stages once."""
    held = [stage for rank in ranks for stage in stages.get(rank, ())]
    return set(ranks) <= stages.keys() and sorted(held) == list(range(count))


def schedule_of_actions(ranks: Sequence[Actions]) -> str:
    """Return the schedule of the order in the first step that the ranks of a pipeline have in common."""
    common = set.intersection(*(set(actions.step.tolist()) for actions in ranks))
    if not common:
        return "unknown"
    orders: list[Order] = []
    for of_rank in ranks:
        actions = of_rank.rows(of_rank.step == min(common))
        kinds = [ACTION_KINDS[kind] for kind in actions.kind.tolist()]
        orders.append(list(zip(kinds, actions.stage.tolist(), actions.microbatch.tolist(), strict=True)))
    return schedule_of_order(sorted(orders, key=lambda order: min(stage for _, stage, _ in order)))
