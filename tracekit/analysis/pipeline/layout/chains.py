"""Finds the stages of actions by following microbatches from rank to rank, where ranks may have several stages.

A message leads from the action before its send to the action that waits for its receive, the next one of the same
kind. So forwards form chains, one a microbatch: the place of a forward in its chain is its stage. The chains of
backwards lead from the last stage to the first. Rings, such as context parallelism, have no first action.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.pipeline.parts import ACTIONS, Actions
from tracekit.model.events import ABSENT, Bool, Int32, Int64
from tracekit.model.messages import MatchedMessages, Messages
from tracekit.model.spans import ACTION_KINDS
from tracekit.model.summary import RankSummary

_FORWARD, _BACKWARD = ACTION_KINDS.index("F"), ACTION_KINDS.index("B")
_Place = tuple[int, int]  # a rank, and a row of its actions

__all__ = ["StagedActions", "follow_microbatches"]


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
        for place, (rank, row) in enumerate(chain):
            number = stages - 1 - place if backward else place
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


def _following_actions(members: Mapping[int, RankSummary], matched: MatchedMessages) -> dict[_Place, set[_Place]]:
    """Return to which actions the messages of an action lead."""
    of_members = matched.rows(np.isin(matched.source, list(members)) & np.isin(matched.destination, list(members)))
    received: dict[int, list[tuple[int, _Place]]] = defaultdict(list)  # by destination: the receive, who sent it
    for source in np.unique(of_members.source).tolist():
        sent = of_members.rows(of_members.source == source)
        producers = _producers(members[source][ACTIONS], members[source].messages)[sent.send]
        for destination, recv, producer in zip(
            sent.destination.tolist(), sent.recv.tolist(), producers.tolist(), strict=True
        ):
            if producer >= 0:
                received[destination].append((recv, (source, producer)))
    following: dict[_Place, set[_Place]] = defaultdict(set)
    for destination, arrivals in received.items():
        actions, messages = members[destination][ACTIONS], members[destination].messages
        for kind in (_FORWARD, _BACKWARD):
            rows = np.flatnonzero(actions.kind == kind)
            since = np.searchsorted(actions.issue_ns[rows], messages.issue_ns, side="left").tolist()
            place, latest = -1, None
            for recv, producer in sorted(arrivals):
                if members[producer[0]][ACTIONS].kind[producer[1]] != kind:
                    continue
                if producer != latest:  # else it is another tensor of the same action
                    place, latest = max(since[recv], place + 1), producer
                if place < len(rows):
                    following[producer].add((destination, int(rows[place])))
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
    place = np.arange(len(actions))
    last_forward, last_backward = (np.maximum.accumulate(np.where(of, place, ABSENT)) for of in (~backward, backward))
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


def _chains(places: set[_Place], following: Mapping[_Place, set[_Place]]) -> list[list[_Place]] | None:
    """Return the chains of actions from each action that nothing leads to; None if they branch, meet or go around."""
    reached = [place for places_after in following.values() for place in places_after]
    if any(len(after) > 1 for after in following.values()) or len(set(reached)) < len(reached):
        return None
    chains = []
    for place in sorted(places - set(reached)):
        chain = [place]
        while after := following.get(chain[-1]):
            chain.append(next(iter(after)))
        chains.append(chain)
    return chains if sum(map(len, chains)) == len(places) and chains else None


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
