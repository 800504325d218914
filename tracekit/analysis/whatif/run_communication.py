"""When each rank was ready for each collective, send and receive, and when it ended there: what replays start from."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.timeline.parts import WAITS
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.run import ClockModel, Run
from tracekit.model.summary import RankSummary

_POLL_NS = 50_000  # a wait no longer than this is a look whether the message is there
_SEND, _RECV = KINDS.index("send"), KINDS.index("recv")

__all__ = ["Communication", "run_communication"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Communication:
    """n collectives, sends and receives of one rank, by the time when it was ready for them.

    Attributes:
        rank: the rank.
        ready_ns: int64 [n], on the run's clock. A CPU rank is ready when it issues. A GPU rank, whose host runs ahead,
            is ready when the kernel begins.
        end_ns: int64 [n], on the run's clock.
        kind: int64 [n], index into `KINDS`.
        size_bytes: int64 [n], or -1.
        members: int64 [n], how many ranks end together.
        group: int64 [n], equal on all ranks for those that end together, or -1.
        follows: int64 [n], the row that has to end on this rank before this one begins, or -1.
    """

    rank: int
    ready_ns: Int64
    end_ns: Int64
    kind: Int64
    size_bytes: Int64
    members: Int64
    group: Int64
    follows: Int64

    def __len__(self) -> int:
        return len(self.ready_ns)


def run_communication(run: Run) -> dict[int, Communication]:
    """Return the communication of each rank of a run with matched collectives and messages."""
    parts: dict[int, list[Int64]] = defaultdict(list)
    summaries = {summary.rank: summary for summary in run.ranks}
    clocks = {clock.rank: clock for clock in run.clocks}
    number = 0
    serial: dict[int, bool] = {}
    for matched in run.collectives:
        instances = matched.row.shape[1]
        members = (matched.row >= 0).sum(axis=0)
        one_by_one = True
        for place, rank in enumerate(matched.ranks.tolist()):
            collectives, present = summaries[rank].collectives, np.flatnonzero(matched.row[place] >= 0)
            rows = matched.row[place, present]
            order = np.argsort(collectives.start_ns[rows], kind="stable")
            start_ns, end_ns = collectives.start_ns[rows][order], collectives.end_ns[rows][order]
            one_by_one &= bool((start_ns[1:] >= end_ns[:-1]).all())
            parts[rank].append(
                _columns(summaries[rank], clocks[rank], rows, number + present, members[present], matched.group)
            )
        serial[matched.group] = one_by_one
        number += instances
    for rank, columns in _messages(run, summaries, clocks, number).items():
        parts[rank].append(columns)
    return {rank: _assemble(rank, parts[rank], serial) for rank in summaries}


def _columns(summary: RankSummary, clock: ClockModel, rows: Int64, group: Int64, members: Int64, lane: int) -> Int64:
    """Return rows of a rank's collectives as int64 [7, n]. lane: the number of their process group."""
    collectives = summary.collectives
    ready_ns = collectives.start_ns if summary.device == "gpu" else collectives.launch_ns
    times = [clock.to_run(column[rows]) for column in (ready_ns, collectives.end_ns)]
    kind, size_bytes = collectives.kind[rows], collectives.size_bytes[rows]
    return np.stack((*times, kind, size_bytes, members, group, np.full(len(rows), lane)))


def _messages(
    run: Run, summaries: dict[int, RankSummary], clocks: dict[int, ClockModel], number: int
) -> dict[int, Int64]:
    """Return the columns of each rank's messages; a send and its receive get one group number, from `number` on.

    The span of a message ends when its rank looks for it, which may be long after the message was over. Therefore a
    send ends no later than its receive. A receive that no rank waited for took no longer than is typical of those that
    were waited for.
    """
    ready_ns, end_ns, awaited, group = {}, {}, {}, {}
    for rank, summary in summaries.items():
        messages, clock = summary.messages, clocks[rank]
        ready_ns[rank] = clock.to_run(messages.start_ns if summary.device == "gpu" else messages.issue_ns)
        end_ns[rank] = np.where(messages.end_ns == ABSENT, ABSENT, clock.to_run(messages.end_ns))
        awaited[rank] = _was_awaited(summary)
        group[rank] = np.full(len(messages), ABSENT, dtype=np.int64)
    matched = run.messages
    columns = (matched.source, matched.destination, matched.send, matched.recv)
    pairs = list(zip(range(number, number + len(matched)), *(column.tolist() for column in columns), strict=True))
    pairs = [p for p in pairs if end_ns[p[1]][p[3]] != ABSENT and end_ns[p[2]][p[4]] != ABSENT]
    took_ns = [
        int(end_ns[destination][recv]) - max(int(ready_ns[source][send]), int(ready_ns[destination][recv]))
        for _, source, destination, send, recv in pairs
        if awaited[destination][recv]
    ]
    typical_ns = round(float(np.median(took_ns))) if took_ns else None
    for pair, source, destination, send, recv in pairs:
        group[source][send] = group[destination][recv] = pair
        over_ns = min(int(end_ns[source][send]), int(end_ns[destination][recv]))
        if not awaited[destination][recv]:
            begun_ns = max(int(ready_ns[source][send]), int(ready_ns[destination][recv]))
            over_ns = over_ns if typical_ns is None else max(min(over_ns, begun_ns + typical_ns), begun_ns)
            end_ns[destination][recv] = over_ns
        end_ns[source][send] = over_ns
    result = {}
    for rank, summary in summaries.items():
        messages, known = summary.messages, np.flatnonzero(end_ns[rank] != ABSENT)
        parts = (
            *(ready_ns[rank][known], end_ns[rank][known], np.where(messages.is_send[known], _SEND, _RECV)),
            *(messages.size_bytes[known], np.full(len(known), 2), group[rank][known], np.full(len(known), ABSENT)),
        )
        result[rank] = np.stack(parts)
    return result


def _was_awaited(summary: RankSummary) -> Bool:
    """Return whether the rank had waited for a while when each message ended, bool [m]."""
    since_ns, until_ns = summary[WAITS].since_ns, summary[WAITS].until_ns
    end_ns = summary.messages.end_ns
    if not len(since_ns):
        return np.zeros(len(end_ns), dtype=np.bool_)
    place = np.maximum(np.searchsorted(since_ns, end_ns, side="left") - 1, 0)
    return np.asarray((end_ns <= until_ns[place]) & (end_ns - since_ns[place] > _POLL_NS))


def _assemble(rank: int, parts: list[Int64], serial: dict[int, bool]) -> Communication:
    """Return the columns in order of time. serial: whether the collectives of a process group run one after another."""
    empty = np.empty((7, 0), dtype=np.int64)
    columns = np.concatenate([empty, *parts], axis=1).astype(np.int64)
    columns = columns[:, np.lexsort((columns[5], columns[0]))]
    ready_ns, end_ns, kind, size_bytes, members, group, lane = columns
    follows = np.full(len(ready_ns), ABSENT, dtype=np.int64)
    for process_group in np.unique(lane).tolist():
        if serial.get(process_group, False):
            rows = np.flatnonzero(lane == process_group)
            follows[rows[1:]] = rows[:-1]
    return Communication(
        rank=rank,
        ready_ns=ready_ns,
        end_ns=np.maximum(end_ns, ready_ns),
        kind=kind,
        size_bytes=size_bytes,
        members=members,
        group=group,
        follows=follows,
    )
