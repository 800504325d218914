"""Messages as instances of two ranks, the sender and the receiver: who of them came last, and why.

A receiver comes to a message when it waits for it. It may have posted the receive long before.

What a rank did before it sent is compared with its peers. They share a group with it, and send and receive the
same sizes in the same order, such as the same stage in other replicas of a pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.matching.message_times import MessageTimes, message_sizes, message_transfers
from tracekit.analysis.stats.connected_components import connected_components
from tracekit.analysis.stats.leave_one_out import leave_one_out_medians
from tracekit.analysis.stats.rows_by_pair import rows_by_value
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import Run

__all__ = ["MessageArrivals", "message_arrivals"]


@dataclass(frozen=True, kw_only=True, eq=False)
class MessageArrivals:
    """m messages, in the order of the run's.

    Attributes:
        rank: int64 [m], place in the run's ranks of the last to arrive, -1 if both arrived at the same time.
        row: int64 [m], row of that rank's `Messages`.
        arrival_ns: int64 [m], the last arrival, on the run's clock.
        end_ns: int64 [m], on the run's clock.
        times: how long the messages took.
        released_ns: int64 [m], the last rank's last release, on that rank's clock, or -1.
        excess_ns: int64 [m], by how much the time from there to the arrival exceeds the peers' median; 0 without peers.
        size_bytes: int64 [m], or -1.
    """

    rank: Int64
    row: Int64
    arrival_ns: Int64
    end_ns: Int64
    times: MessageTimes
    released_ns: Int64
    excess_ns: Int64
    size_bytes: Int64


def message_arrivals(run: Run, place: Mapping[int, int]) -> MessageArrivals:
    """Return the arrivals at a run's matched messages. place: of each rank, its place among the run's ranks."""
    matched = run.messages
    count = len(matched)
    since, excess = _segments(run, place)
    columns: dict[str, list[Int64]] = {}
    for side, rank, row in (("send", matched.source, matched.send), ("recv", matched.destination, matched.recv)):
        result = {name: np.full(count, ABSENT, dtype=np.int64) for name in ("at", "end", "since", "excess")}
        for number, here in rows_by_value(rank).items():
            member = place[number]
            messages, rows, clock = run.ranks[member].messages, row[here], run.clocks[member]
            result["at"][here] = clock.to_run(messages.arrival_ns[rows])
            ends_ns = messages.end_ns[rows]
            result["end"][here] = np.where(ends_ns == ABSENT, ABSENT, clock.to_run(ends_ns))
            result["since"][here], result["excess"][here] = since[member][rows], excess[member][rows]
        columns[side] = [result[name] for name in ("at", "end", "since", "excess")]
    (sent, send_end, *of_sender), (received, recv_end, *of_receiver) = columns["send"], columns["recv"]
    by_sender = sent > received
    place_of = np.zeros(max(place, default=0) + 1, dtype=np.int64)
    place_of[list(place)] = list(place.values())
    last = np.where(by_sender, place_of[matched.source], place_of[matched.destination])
    arrival_ns = np.maximum(sent, received)
    end_ns = np.where(recv_end != ABSENT, recv_end, np.where(send_end != ABSENT, send_end, arrival_ns))
    released_ns, excess_ns = (
        np.where(by_sender, sender, receiver) for sender, receiver in zip(of_sender, of_receiver, strict=True)
    )
    return MessageArrivals(
        rank=np.where(sent == received, ABSENT, last),
        row=np.where(by_sender, matched.send, matched.recv),
        arrival_ns=arrival_ns,
        end_ns=np.maximum(end_ns, arrival_ns),
        times=message_transfers(run),
        released_ns=released_ns,
        excess_ns=excess_ns,
        size_bytes=message_sizes(run),
    )


def _segments(run: Run, place: Mapping[int, int]) -> tuple[list[Int64], list[Int64]]:
    """Return for each rank when it was last released before each message, and the excess of the time since then.

    A release is -1 where there is none. The beginning of the first step counts as a release. The excess is over the
    median of the rank's peers, 0 without peers.
    """
    since, segment_ns = [], []
    for summary in run.ranks:
        messages, arrival_ns = summary.messages, summary.messages.arrival_ns
        if not len(messages):
            since.append(arrival_ns)
            segment_ns.append(arrival_ns)
            continue
        received = (~messages.is_send) & (messages.end_ns != ABSENT)
        begin_ns = np.array([step.start_ns for step in summary.steps], dtype=np.int64)[:1]
        released_ns = np.unique(np.concatenate((begin_ns, messages.end_ns[received], summary.collectives.end_ns)))
        before = np.searchsorted(released_ns, arrival_ns, side="right") - 1
        known = before >= 0
        since.append(np.where(known, released_ns[np.maximum(before, 0)], ABSENT) if len(released_ns) else before)
        segment_ns.append(np.where(since[-1] == ABSENT, 0, arrival_ns - since[-1]))
    excess = [np.zeros(len(of_rank_ns), dtype=np.int64) for of_rank_ns in segment_ns]
    for peers in _peer_sets(run, place):
        values = np.stack([segment_ns[member] for member in peers], axis=1)
        known = np.stack([since[member] != ABSENT for member in peers], axis=1)
        beyond_ns = np.where(
            known & (known.sum(axis=1, keepdims=True) > 1), values - leave_one_out_medians(values, known), 0
        )
        for column, member in enumerate(peers):
            excess[member] = beyond_ns[:, column]
    return since, excess


def _peer_sets(run: Run, place: Mapping[int, int]) -> list[list[int]]:
    """Return sets of peers, two places or more: they share a group and exchange the same sizes in the same order."""
    signature = [
        (s.messages.is_send.tobytes(), s.messages.size_bytes.tobytes(), s.messages.step.tobytes()) for s in run.ranks
    ]
    pairs = []
    for matched in run.collectives:
        seen: dict[tuple[bytes, ...], int] = {}
        for rank in matched.ranks.tolist():
            member = place[rank]
            if len(run.ranks[member].messages):
                pairs.append((member, seen.setdefault(signature[member], member)))
    return [peers for peers in connected_components(pairs) if len(peers) > 1]
