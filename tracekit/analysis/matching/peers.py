"""Who is at the other end of messages that do not name their peer, as in batches of torch before 2.5.

In a group of two it is the other rank. A longer group may be a pipeline, whose ranks torch and Megatron-LM list in the
order of their stages: activations go to the next rank, and gradients to the one before. That is assumed where all ranks
of the group fit: each receives as many messages of each direction and size as its neighbour sends, in the same order.

Ranks with several stages may run a forward and a backward, and then exchange messages for both. If there is only one,
the rank is the first of the group, which has no gradient to send and no activation to receive, or the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tracekit.model.communication import GroupKey
from tracekit.model.events import ABSENT, Int32, Int64
from tracekit.model.messages import Messages
from tracekit.model.notes import Note
from tracekit.model.spans import ACTION_KINDS
from tracekit.model.summary import RankSummary

_FORWARD, _BACKWARD = ACTION_KINDS.index("F"), ACTION_KINDS.index("B")
_DIRECTIONS = ((_FORWARD, 1), (_BACKWARD, -1))

__all__ = ["with_inferred_peers"]


def with_inferred_peers(ranks: Sequence[RankSummary]) -> tuple[tuple[RankSummary, ...], list[Note]]:
    """Return the summaries with the peers of their messages, without messages whose peer stays unknown; and notes."""
    silent = {s.rank: s for s in ranks if (s.messages.peer == ABSENT).any()}
    if not silent:
        return tuple(ranks), []
    peers = {rank: summary.messages.peer.copy() for rank, summary in silent.items()}
    inferred = 0
    for group in {group for summary in silent.values() for group in summary.groups if len(group.ranks) > 1}:
        if not silent.keys() >= set(group.ranks):
            continue
        of_group = {rank: _nameless(silent[rank], group) for rank in group.ranks}
        toward = _neighbours(group.ranks, {rank: silent[rank].messages.rows(rows) for rank, rows in of_group.items()})
        for rank, rows in of_group.items() if toward is not None else ():
            assert toward is not None
            peers[rank][rows] = toward[rank]
            inferred += len(rows)
    unknown = sum(int((of_rank == ABSENT).sum()) for of_rank in peers.values())
    result = []
    for summary in ranks:
        if summary.rank in peers:
            messages = replace(summary.messages, peer=peers[summary.rank])
            summary = replace(summary, messages=messages.rows(messages.peer != ABSENT))
        result.append(summary)
    return tuple(result), _notes(inferred, unknown)


def _nameless(summary: RankSummary, group: GroupKey) -> Int64:
    """Return the rows of the messages in a group that do not name their peer."""
    number = summary.groups.index(group) if group in summary.groups else ABSENT - 1
    return np.flatnonzero((summary.messages.peer == ABSENT) & (summary.messages.group == number))


def _neighbours(order: Sequence[int], messages: Mapping[int, Messages]) -> dict[int, Int64] | None:
    """Return the peer of each message of a group, int64 [n] by rank; None if the group does not fit a pipeline.

    `order` are the members as the group lists them.
    """
    count = len(order)
    if count == 2:
        return {rank: np.full(len(messages[rank]), other) for rank, other in zip(order, order[::-1], strict=True)}
    result: dict[int, Int64] = {rank: np.full(len(messages[rank]), ABSENT, dtype=np.int64) for rank in order}
    kinds = {rank: _kinds(of_rank, rank == order[0], rank == order[-1]) for rank, of_rank in messages.items()}
    for kind, shift in _DIRECTIONS:
        for place, rank in enumerate(order):
            following = order[(place + shift) % count]
            sends = messages[rank].is_send & (kinds[rank] == kind)
            receives = ~messages[following].is_send & (kinds[following] == kind)
            if not _are_alike(messages[rank].rows(sends), messages[following].rows(receives)):
                return None
            result[rank][sends], result[following][receives] = following, rank
    return result if all((peers != ABSENT).all() for peers in result.values()) else None


def _kinds(messages: Messages, first: bool, last: bool) -> Int32:
    """Return whether each message carries an activation or a gradient, int32 [n], or -1. first, last: of the group."""
    kinds = np.where(messages.is_send, messages.after, messages.before)
    if first:
        return np.where(kinds == ABSENT, np.where(messages.is_send, _FORWARD, _BACKWARD), kinds)
    return np.where(kinds == ABSENT, np.where(messages.is_send, _BACKWARD, _FORWARD), kinds) if last else kinds


def _are_alike(sends: Messages, receives: Messages) -> bool:
    return np.array_equal(sends.step, receives.step) and np.array_equal(sends.size_bytes, receives.size_bytes)


def _notes(inferred: int, unknown: int) -> list[Note]:
    notes = []
    if inferred:
        text = f"{inferred} sends or receives do not name their peer; it is inferred from the members of their group"
        notes.append(Note(kind="inferred", severity="info", text=text))
    if unknown:
        text = f"{unknown} sends or receives do not name their peer, and are matched with none"
        notes.append(Note(kind="unlinked", severity="warning", text=text))
    return notes
