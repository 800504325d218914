"""Which send met which receive, over all ranks.

An edge is (source, destination, group, tag). Messages of an edge arrive in the order in which they were sent. Windows
begin with the same step on all ranks, so the k-th send of a step meets the k-th receive of that step on its edge.

Messages may cross the edges of steps: then the two sides of an edge have different counts in a step, or a receive would
have ended before its send began. In that case the sends of the first receives lie before the recording. As few first
receives as possible are left out so that order and sizes fit, and the rest is paired in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.matching import columns
from tracekit.analysis.table import FilledTable
from tracekit.model.columnar import Columnar
from tracekit.model.communication import GroupKey
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.messages import MatchedMessages
from tracekit.model.notes import Note
from tracekit.model.run import ClockModel, Run, clocks_are_comparable
from tracekit.model.summary import RankSummary

if TYPE_CHECKING:
    import pandas as pd

_MISSING = "the trace of the other rank is missing"
_OUTSIDE = "its counterpart lies before or after the recording"
_DISAGREE = "order and sizes differ between the two ranks"
_NO_RECORDS = "the other rank recorded no messages"

__all__ = ["match_messages", "message_edges", "message_table"]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Table(Columnar):
    """All messages of a run, n rows.

    Attributes:
        rank: int64 [n].
        row: in the rank's `Messages`, int64 [n].
        edge: a number, int64 [n].
        step: int64 [n].
        is_send: bool [n].
        begun_ns: on the run's clock, int64 [n].
        ended_ns: on the run's clock, or -1, int64 [n].
        size_bytes: int64 [n].
    """

    rank: Int64
    row: Int64
    edge: Int64
    step: Int64
    is_send: Bool
    begun_ns: Int64
    ended_ns: Int64
    size_bytes: Int64


def match_messages(
    ranks: Sequence[RankSummary], clocks: Sequence[ClockModel], selected: frozenset[int] | None = None
) -> tuple[MatchedMessages, list[Note]]:
    """Return the matches in order of source, destination and time, and at most one note.

    Messages to ranks that were not `selected` do not count as missing.
    """
    unlinked: Counter[str] = Counter()
    table, peer = _table(ranks, clocks)
    peer_missing = ~np.isin(peer, [summary.rank for summary in ranks])
    if selected is None:
        unlinked[_MISSING] += int(peer_missing.sum())
    peer_silent = np.isin(peer, [summary.rank for summary in ranks if not len(summary.messages)])
    unlinked[_NO_RECORDS] += int(peer_silent.sum())
    if not len(table.rank):
        return MatchedMessages.empty(), []
    table = table.rows(~peer_missing & ~peer_silent)
    pairs = _match(table, 2 * max((clock.error_ns or 0 for clock in clocks), default=0), unlinked)
    sends, receives = table.rows(pairs[0]), table.rows(pairs[1])
    matches = MatchedMessages(
        source=sends.rank.astype(np.int32),
        destination=receives.rank.astype(np.int32),
        send=sends.row,
        recv=receives.row,
        step=sends.step,
    )
    order = np.lexsort((matches.send, matches.destination, matches.source))
    return matches.rows(order), _notes(unlinked)


def _table(ranks: Sequence[RankSummary], clocks: Sequence[ClockModel]) -> tuple[_Table, Int64]:
    """Return the table and the peer of each row. If clocks cannot be compared, no end is known."""
    clock_of = {clock.rank: clock for clock in clocks}
    comparable = clocks_are_comparable(ranks, clocks)
    groups: dict[GroupKey, int] = {}
    parts, keys = [], []
    for summary in ranks:
        messages, clock = summary.messages, clock_of[summary.rank]
        numbers = np.array(
            [*(groups.setdefault(group, len(groups)) for group in summary.groups), ABSENT], dtype=np.int64
        )
        rank = np.full(len(messages), summary.rank, dtype=np.int64)
        known = (messages.end_ns != ABSENT) & comparable
        parts.append(
            _Table(
                rank=rank,
                row=np.arange(len(messages), dtype=np.int64),
                edge=rank,
                step=messages.step,
                is_send=messages.is_send,
                begun_ns=clock.to_run(messages.issue_ns),
                ended_ns=np.where(known, clock.to_run(messages.end_ns), ABSENT),
                size_bytes=messages.size_bytes,
            )
        )
        source, destination = (
            np.where(messages.is_send, rank, messages.peer),
            np.where(messages.is_send, messages.peer, rank),
        )
        keys.append(np.stack((source, destination, numbers[messages.group], messages.tag, messages.peer)))
    key = np.concatenate(keys, axis=1)
    edge = np.unique(key[:4], axis=1, return_inverse=True)[1].reshape(-1) if key.size else key[0]
    return replace(_Table.concatenate(parts), edge=edge), key[4]


def message_edges(run: Run) -> pd.DataFrame:
    """Return who sends to whom over all recorded steps: rows of columns.POINT_TO_POINT."""
    return message_table(run).frame


def message_table(run: Run) -> FilledTable:
    """Return what `message_edges` returns, without pandas."""
    number = {group: i for i, group in enumerate(run.groups)}
    counts: dict[tuple[int, int, int], list[int]] = {}  # sends, receives, bytes (-1: a size is unknown) of an edge
    joined_counts: Counter[tuple[int, int, int]] = Counter()
    for summary in run.ranks:
        messages = summary.messages
        groups = np.array([*(number[group] for group in summary.groups), ABSENT], dtype=np.int64)[messages.group]
        keys = np.stack((messages.is_send.astype(np.int64), messages.peer.astype(np.int64), groups))
        unique_keys, place = np.unique(keys, axis=1, return_inverse=True)
        for i, (is_send, peer, group) in enumerate(unique_keys.T.tolist()):
            in_edge = place.reshape(-1) == i
            edge = (summary.rank, peer, group) if is_send else (peer, summary.rank, group)
            sizes = messages.size_bytes[in_edge]
            row = counts.setdefault(edge, [0, 0, 0])
            row[0 if is_send else 1] = int(in_edge.sum())
            if is_send or row[0] == 0:
                row[2] = int(sizes.sum()) if (sizes != ABSENT).all() else ABSENT
        of_this_rank = run.messages.source == summary.rank
        matched_keys = np.stack((run.messages.destination[of_this_rank], groups[run.messages.send[of_this_rank]]))
        unique_keys, count = np.unique(matched_keys, axis=1, return_counts=True)
        for (destination, group), n in zip(unique_keys.T.tolist(), count.tolist(), strict=True):
            joined_counts[summary.rank, destination, group] = n
    rows = [
        {
            "source": edge[0],
            "destination": edge[1],
            "group": None if edge[2] == ABSENT else edge[2],
            "sends": sends,
            "receives": receives,
            "joined": joined_counts[edge],
            "size_bytes": None if size_bytes == ABSENT else size_bytes,
        }
        for edge, (sends, receives, size_bytes) in sorted(counts.items())
    ]
    return columns.POINT_TO_POINT.fill(rows)


def _match(table: _Table, error_ns: int, unlinked: Counter[str]) -> tuple[Int64, Int64]:
    """Return the positions of sends and of their receives in the table."""
    order = np.lexsort((table.begun_ns, table.is_send, table.edge))
    crossing = np.zeros(int(table.edge.max(initial=-1)) + 1, dtype=np.bool_)
    in_step = order[table.step[order] != ABSENT]
    sends, receives = in_step[table.is_send[in_step]], in_step[~table.is_send[in_step]]
    of_sends, of_receives = (np.stack((table.edge[side], table.step[side])) for side in (sends, receives))
    steps, counts = np.unique(np.concatenate((of_sends, of_receives), axis=1), axis=1, return_inverse=True)
    counts = counts.reshape(-1)
    in_sends = np.bincount(counts[: len(sends)], minlength=steps.shape[1])
    in_receives = np.bincount(counts[len(sends) :], minlength=steps.shape[1])
    crossing[steps[0][in_sends != in_receives]] = True
    straight_sends, straight_receives = sends[~crossing[table.edge[sends]]], receives[~crossing[table.edge[receives]]]
    # Both are sorted by edge, then time, with equal counts in every step: the k-th send meets the k-th receive.
    late = _before_it_was_sent(table, straight_sends, straight_receives, error_ns)
    late |= _differ_in_size(table, straight_sends, straight_receives)
    crossing[table.edge[straight_sends[late]]] = True
    straight = ~crossing[table.edge[straight_sends]]
    pairs = [(straight_sends[straight], straight_receives[straight])]
    first = np.searchsorted(table.edge[order], np.arange(len(crossing) + 1))
    for edge in np.flatnonzero(crossing):
        edge_rows = order[first[edge] : first[edge + 1]]
        pairs.append(
            _match_edge(
                table, edge_rows[table.is_send[edge_rows]], edge_rows[~table.is_send[edge_rows]], error_ns, unlinked
            )
        )
    return np.concatenate([sends for sends, _ in pairs]), np.concatenate([receives for _, receives in pairs])


def _match_edge(
    table: _Table, sends: Int64, receives: Int64, error_ns: int, unlinked: Counter[str]
) -> tuple[Int64, Int64]:
    """Return the pairs of one edge in order.

    The fewest first receives are left out such that nothing arrives before it is sent.
    """
    for skipped in range(len(receives) + 1):
        count = min(len(sends), len(receives) - skipped)
        kept_sends, kept_receives = sends[:count], receives[skipped : skipped + count]
        wrong = _before_it_was_sent(table, kept_sends, kept_receives, error_ns) | _differ_in_size(
            table, kept_sends, kept_receives
        )
        if count and not wrong.any():
            unlinked[_OUTSIDE] += len(sends) + len(receives) - 2 * count
            return kept_sends, kept_receives
    unlinked[_OUTSIDE if not len(sends) or not len(receives) else _DISAGREE] += len(sends) + len(receives)
    return sends[:0], receives[:0]


def _before_it_was_sent(table: _Table, sends: Int64, receives: Int64, error_ns: int) -> Bool:
    """Return a mask of the pairs whose receive ended before the send began, by more than the clocks' error."""
    known = table.ended_ns[receives] != ABSENT
    return np.asarray(known & (table.ended_ns[receives] + error_ns < table.begun_ns[sends]))


def _differ_in_size(table: _Table, sends: Int64, receives: Int64) -> Bool:
    """Return a mask of the pairs whose sizes are known and differ."""
    known = (table.size_bytes[sends] != ABSENT) & (table.size_bytes[receives] != ABSENT)
    return np.asarray(known & (table.size_bytes[sends] != table.size_bytes[receives]))


def _notes(unlinked: Counter[str]) -> list[Note]:
    total = sum(unlinked.values())
    if not total:
        return []
    reasons = "; ".join(f"{count}: {reason}" for reason, count in sorted(unlinked.items()) if count)
    text = f"{total} sends or receives have no counterpart ({reasons})"
    return [Note(kind="unlinked", severity="warning", text=text)]
