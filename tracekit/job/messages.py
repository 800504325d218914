"""Which send met which receive, over all ranks.

An edge is (source, destination, group, tag). Messages of an edge arrive in the order in which they were sent. Windows
begin with the same step on all ranks, so the k-th send of a step meets the k-th receive of that step on its edge.

A step whose two sides of an edge have different counts lacks records. Only those messages are then matched whose
position is certain: no receive ends before its send begins, and sizes agree. The other steps are not affected.

Messages may also cross the edges of steps. Then most steps of an edge would have receives that ended before their sends
began, or of another size. In that case the sends of the first receives lie before the recording. As few first receives
as possible are left out so that order and sizes fit, and the rest is paired in order.

Messages of Gloo in recordings of other tools show the peer's place in a group, but not which group. It is the one in
which the peer's messages are the counterparts.

Batches of torch before 2.5 do not name the peers of their messages, nor do those of Gloo without recorded shapes. In a
group of two it is the other rank. A longer group may be a pipeline, whose ranks torch and Megatron-LM list in the order
of their stages: activations go to the next rank, and gradients to the one before. That is assumed where all ranks of
the group fit: each receives as many messages of each direction and size as its neighbour sends, in the same order.

Ranks with several stages may run a forward and a backward, and then exchange messages for both. If there is only one,
the rank is the first of the group, which has no gradient to send and no activation to receive, or the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.job.collectives import certain_positions
from tracekit.model.columnar import Columnar
from tracekit.model.communication import FIRST_PLACE, GroupKey, MatchedMessages, Messages
from tracekit.model.events import ABSENT, Bool, Int32, Int64
from tracekit.model.notes import Note
from tracekit.model.run import ClockModel, Run, clocks_are_comparable
from tracekit.model.spans import ACTION_KINDS
from tracekit.model.summary import RankSummary
from tracekit.model.table import Column, FilledTable, Table
from tracekit.stats.rows_by_key import rows_by_key, rows_by_value

if TYPE_CHECKING:
    pass


_ANY_TIME_NS = np.iinfo(np.int64).max
_MISSING = "the trace of the other rank is missing"
_OUTSIDE = "its counterpart lies before or after the recording"
_DISAGREE = "order and sizes differ between the two ranks"
_LOST = "the other rank did not record it"
_UNCERTAIN = "records of its step are lost, and its place among the others is not certain"
_NO_RECORDS = "the other rank recorded no messages"

POINT_TO_POINT = Table(
    "point_to_point",
    (
        Column("source", "int", "", "Global rank that sends."),
        Column("destination", "int", "", "Global rank that receives."),
        Column("group", "int?", "", "Id in `groups`; null for a group destroyed since."),
        Column("sends", "int", "", "Sends that the source recorded."),
        Column("receives", "int", "", "Receives that the destination recorded."),
        Column("joined", "int", "", "Sends joined to their receive."),
        Column("size_bytes", "int?", "bytes", "Sum over the sends, or the receives where these are not recorded."),
    ),
)

_MOST = 0.8  # of the messages between two ranks have their counterparts in both recordings
_FORWARD, _BACKWARD = ACTION_KINDS.index("F"), ACTION_KINDS.index("B")
_DIRECTIONS = ((_FORWARD, 1), (_BACKWARD, -1))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Table(Columnar):
    """All messages of a run, n rows.

    Attributes:
        rank: int64 [n].
        row: in the rank's `Messages`, int64 [n].
        edge: a number, int64 [n].
        step: int64 [n].
        is_send: bool [n].
        begun_ns: when the operator began on a CPU rank, or the kernel on a GPU rank, on the run's clock, int64 [n].
        ended_ns: on the run's clock, or -1, int64 [n].
        error_ns: the uncertainty of the rank's clock, int64 [n], or -1 where times of other ranks cannot be compared.
        size_bytes: int64 [n].
    """

    rank: Int64
    row: Int64
    edge: Int64
    step: Int64
    is_send: Bool
    begun_ns: Int64
    ended_ns: Int64
    error_ns: Int64
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
    pairs = _match(table, unlinked)
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
    """Return the table and the peer of each row."""
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
        known = comparable or clock.method != "none"
        error_ns = np.full(len(messages), (clock.error_ns or 0) if known else ABSENT, dtype=np.int64)
        parts.append(
            _Table(
                rank=rank,
                row=np.arange(len(messages), dtype=np.int64),
                edge=rank,
                step=messages.step,
                is_send=messages.is_send,
                begun_ns=clock.to_run(_begun_ns(summary)),
                ended_ns=np.where(messages.end_ns == ABSENT, ABSENT, clock.to_run(messages.end_ns)),
                error_ns=error_ns,
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


def _begun_ns(summary: RankSummary) -> Int64:
    """Return when each message began, int64 [n]: on a GPU rank its kernel, which the host may launch far ahead."""
    messages = summary.messages
    known = (messages.start_ns != ABSENT) & (summary.device == "gpu")
    return np.where(known, messages.start_ns, messages.issue_ns)


def message_table(run: Run) -> FilledTable:
    """Return who sends to whom over all recorded steps."""
    number = {group: i for i, group in enumerate(run.groups)}
    counts: dict[tuple[int, int, int], list[int]] = {}  # sends, receives, bytes (-1: a size is unknown) of an edge
    joined_counts: Counter[tuple[int, int, int]] = Counter()
    for summary in run.ranks:
        messages = summary.messages
        groups = np.array([*(number[group] for group in summary.groups), ABSENT], dtype=np.int64)[messages.group]
        edges = rows_by_key(messages.is_send.astype(np.int32), messages.peer, groups)
        for (is_send, peer, group), in_edge in edges.items():
            edge = (summary.rank, peer, group) if is_send else (peer, summary.rank, group)
            sizes = messages.size_bytes[in_edge]
            row = counts.setdefault(edge, [0, 0, 0])
            row[0 if is_send else 1] = len(in_edge)
            if is_send or row[0] == 0:
                row[2] = int(sizes.sum()) if (sizes != ABSENT).all() else ABSENT
        of_this_rank = run.messages.source == summary.rank
        joined = rows_by_key(run.messages.destination[of_this_rank], groups[run.messages.send[of_this_rank]])
        for (destination, group), rows_of_edge in joined.items():
            joined_counts[summary.rank, destination, group] = len(rows_of_edge)
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
    return POINT_TO_POINT.fill(rows)


def _match(table: _Table, unlinked: Counter[str]) -> tuple[Int64, Int64]:
    """Return the positions of sends and of their receives in the table."""
    order = np.lexsort((table.row, table.step, table.is_send, table.edge))
    in_step = order[table.step[order] != ABSENT]
    sends, receives = in_step[table.is_send[in_step]], in_step[~table.is_send[in_step]]
    # A cell is a step of an edge. Both sides are sorted by cell, then time.
    keys = np.stack((table.edge[np.concatenate((sends, receives))], table.step[np.concatenate((sends, receives))]))
    cells, cell = np.unique(keys, axis=1, return_inverse=True)
    cell_of_send, cell_of_receive = np.split(cell.reshape(-1), [len(sends)])
    sent, received = (np.bincount(side, minlength=cells.shape[1]) for side in (cell_of_send, cell_of_receive))
    is_even = sent == received
    even_sends, even_receives = sends[is_even[cell_of_send]], receives[is_even[cell_of_receive]]
    cell_of_pair = cell_of_send[is_even[cell_of_send]]
    contradicted = np.zeros(len(is_even), dtype=np.bool_)
    contradicted[cell_of_pair[~_fit(table, even_sends, even_receives)]] = True
    edges = int(table.edge.max(initial=-1)) + 1
    is_crossing = 2 * np.bincount(cells[0], contradicted, edges) > np.bincount(cells[0], is_even, edges)
    pairs = []
    first = np.searchsorted(table.edge[order], np.arange(edges + 1))
    for edge in np.flatnonzero(is_crossing).tolist():
        rows = order[first[edge] : first[edge + 1]]
        rows = rows[np.argsort(table.row[rows], kind="stable")]
        crossing_pairs = _match_across_steps(table, rows[table.is_send[rows]], rows[~table.is_send[rows]], unlinked)
        is_crossing[edge] = crossing_pairs is not None
        if crossing_pairs is not None:
            pairs.append(crossing_pairs)
    in_order = ~is_crossing[cells[0]] & is_even & ~contradicted
    pairs.append((even_sends[in_order[cell_of_pair]], even_receives[in_order[cell_of_pair]]))
    begin_of_sends, begin_of_receives = (np.concatenate(([0], np.cumsum(count))) for count in (sent, received))
    for i in np.flatnonzero(~is_crossing[cells[0]] & ~in_order).tolist():
        of_sends = sends[begin_of_sends[i] : begin_of_sends[i + 1]]
        of_receives = receives[begin_of_receives[i] : begin_of_receives[i + 1]]
        pairs.append(_match_incomplete_step(table, of_sends, of_receives, unlinked))
    return np.concatenate([sends for sends, _ in pairs]), np.concatenate([receives for _, receives in pairs])


def _match_incomplete_step(table: _Table, sends: Int64, receives: Int64, unlinked: Counter[str]) -> tuple[Int64, Int64]:
    """Return the certain pairs of an edge in a step for which one of the ranks lacks records."""
    if not len(sends) or not len(receives):
        unlinked[_OUTSIDE] += len(sends) + len(receives)
        return sends[:0], receives[:0]
    # What ended before the first send, or began after the last receive, has its counterpart elsewhere.
    inner_sends = sends[_in_order(table, sends, np.repeat(receives[-1:], len(sends)))]
    inner_receives = receives[_in_order(table, np.repeat(sends[:1], len(receives)), receives)]
    count = (len(inner_sends), len(inner_receives))
    unlinked[_OUTSIDE] += len(sends) + len(receives) - sum(count)
    fits = _pair_test(table, inner_sends, inner_receives)
    if count[0] <= count[1]:
        positions = certain_positions(*count, fits)
    else:
        positions = certain_positions(*count[::-1], lambda receive, send: fits(send, receive))
    is_certain = positions != ABSENT
    reason = _LOST if is_certain.all() else _UNCERTAIN if count[0] != count[1] else _DISAGREE
    unlinked[reason] += sum(count) - 2 * int(is_certain.sum())
    if count[0] <= count[1]:
        return inner_sends[is_certain], inner_receives[positions[is_certain]]
    return inner_sends[positions[is_certain]], inner_receives[is_certain]


def _pair_test(table: _Table, sends: Int64, receives: Int64) -> Callable[[int, int], bool]:
    """Return a function that says whether a pair of the k-th send and the n-th receive of an edge is possible.

    It says the same as `_fit`, and is quick for single pairs.
    """
    begun_ns, latest_ns = table.begun_ns[sends].tolist(), _latest_ns(table, sends[:1], receives).tolist()
    sent_bytes, received_bytes = table.size_bytes[sends].tolist(), table.size_bytes[receives].tolist()

    def fits(send: int, receive: int) -> bool:
        sizes = (sent_bytes[send], received_bytes[receive])
        return begun_ns[send] <= latest_ns[receive] and (ABSENT in sizes or sizes[0] == sizes[1])

    return fits


def _match_across_steps(
    table: _Table, sends: Int64, receives: Int64, unlinked: Counter[str]
) -> tuple[Int64, Int64] | None:
    """Return the pairs of one edge in order, regardless of steps; None if order and sizes never fit.

    The fewest first receives are left out such that nothing arrives before it is sent.
    """
    for skipped in range(len(receives)):
        count = min(len(sends), len(receives) - skipped)
        kept_sends, kept_receives = sends[:count], receives[skipped : skipped + count]
        if count and _fit(table, kept_sends, kept_receives).all():
            unlinked[_OUTSIDE] += len(sends) + len(receives) - 2 * count
            return kept_sends, kept_receives
    return None


def _fit(table: _Table, sends: Int64, receives: Int64) -> Bool:
    """Return a mask of the pairs that are possible: the order is possible, and known sizes are equal."""
    sent_bytes, received_bytes = table.size_bytes[sends], table.size_bytes[receives]
    known = (sent_bytes != ABSENT) & (received_bytes != ABSENT)
    return np.asarray(_in_order(table, sends, receives) & ~(known & (sent_bytes != received_bytes)))


def _in_order(table: _Table, sends: Int64, receives: Int64) -> Bool:
    """Return a mask of the pairs whose receive does not end before the send begins, by more than the clocks' errors."""
    return np.asarray(table.begun_ns[sends] <= _latest_ns(table, sends, receives))


def _latest_ns(table: _Table, sends: Int64, receives: Int64) -> Int64:
    """Return the latest time at which the send of each pair can have begun, int64 [n].

    `sends` are one for each receive, or one of the same rank as all of them.
    """
    errors_ns = table.error_ns[sends], table.error_ns[receives]
    known = (errors_ns[0] != ABSENT) & (errors_ns[1] != ABSENT) & (table.ended_ns[receives] != ABSENT)
    return np.where(known, table.ended_ns[receives] + errors_ns[0] + errors_ns[1], _ANY_TIME_NS)


def _notes(unlinked: Counter[str]) -> list[Note]:
    total = sum(unlinked.values())
    if not total:
        return []
    reasons = "; ".join(f"{count}: {reason}" for reason, count in sorted(unlinked.items()) if count)
    text = f"{total} sends or receives have no counterpart ({reasons})"
    return [Note(id="unlinked", severity="warning", text=text)]


def with_inferred_peers(ranks: Sequence[RankSummary]) -> tuple[tuple[RankSummary, ...], list[Note]]:
    """Return the summaries with the peers of their messages, without messages whose peer stays unknown; and notes."""
    ranks = _with_groups(ranks)
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
    return tuple(result), _peer_notes(inferred, unknown)


def _with_groups(ranks: Sequence[RankSummary]) -> Sequence[RankSummary]:
    """Return the summaries with group and peer of messages that show the peer's place in a group, if they can be told.

    It is a group in which the peer's messages, that show this rank's place, are the counterparts; of several such with
    the same peer the smallest. Otherwise the peer is -1.
    """
    columns = {s.rank: (s.messages.peer.copy(), s.messages.group.copy()) for s in ranks}
    messages_of = {s.rank: s.messages for s in ranks}
    placed = {s.rank: rows_by_value(np.maximum(FIRST_PLACE - s.messages.peer, ABSENT)) for s in ranks}
    if all(rows.keys() <= {ABSENT} for rows in placed.values()):
        return ranks
    for summary in ranks:
        rank, messages = summary.rank, summary.messages
        for place, rows in placed[rank].items():
            if place == ABSENT:
                continue
            fitting: list[tuple[tuple[int, ...], int, int]] = []
            for number, group in enumerate(summary.groups):
                peer = group.ranks[place] if place < len(group.ranks) and rank in group.ranks else rank
                theirs = placed.get(peer, {}).get(group.ranks.index(rank)) if peer != rank else None
                if theirs is not None and _are_counterparts(messages.rows(rows), messages_of[peer].rows(theirs)):
                    fitting.append((group.ranks, peer, number))
            _, peer, number = min(fitting, key=lambda f: (len(f[0]), f[0]), default=((), ABSENT, ABSENT))
            certain = len({each for _, each, _ in fitting}) == 1
            columns[rank][0][rows], columns[rank][1][rows] = (peer, number) if certain else (ABSENT, ABSENT)
    return [replace(s, messages=replace(s.messages, peer=columns[s.rank][0], group=columns[s.rank][1])) for s in ranks]


def _are_counterparts(messages: Messages, theirs: Messages) -> bool:
    """Return whether most messages have one of the same tag and size in the other direction, and the other way round.

    A few may lie before or behind the recording of one of the ranks.
    """
    sides = [
        Counter(zip((of.is_send == sends).tolist(), of.tag.tolist(), of.size_bytes.tolist(), strict=True))
        for of, sends in ((messages, True), (theirs, False))
    ]
    return (sides[0] & sides[1]).total() >= _MOST * max(len(messages), len(theirs))


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
        for index, rank in enumerate(order):
            following = order[(index + shift) % count]
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


def _peer_notes(inferred: int, unknown: int) -> list[Note]:
    notes = []
    if inferred:
        text = f"{inferred} sends or receives do not name their peer; it is inferred from the members of their group"
        notes.append(Note(id="inferred", severity="info", text=text))
    if unknown:
        text = (
            f"{unknown} sends or receives do not name their peer, and are matched with none; "
            "with record_shapes=True those of Gloo do, but for receives from any rank"
        )
        notes.append(Note(id="unlinked", severity="warning", text=text))
    return notes
