"""Joins frames of clocks that no collective joins, by what their messages prove.

A frame is a set of ranks whose clocks are known against each other, such as the replicas of one stage of a pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracekit.analysis.clocks.measured import recorded_time
from tracekit.analysis.clocks.message_bounds import BoundedClock, bound_clock, with_possible_jumps
from tracekit.analysis.clocks.reference import ONE_JUMP_NS, pieces_of, relative
from tracekit.analysis.stats.connected_components import DisjointSets
from tracekit.analysis.stats.rows_by_pair import rows_by_pair
from tracekit.model.clocks import ClockJump, ClockModel
from tracekit.model.columnar import Columnar
from tracekit.model.events import ABSENT, Int64
from tracekit.model.messages import MatchedMessages
from tracekit.model.summary import RankSummary

_RESOLUTION_NS = 1000  # of the time stamps of a message's two ends, together
_RETURN_NS = 5000  # in which a kernel ends when it is done

__all__ = ["join_frames"]


def join_frames(
    ranks: Sequence[RankSummary], models: Mapping[int, ClockModel], frame: Mapping[int, int], messages: MatchedMessages
) -> tuple[dict[int, ClockModel], dict[int, int]]:
    """Return models of all ranks, and the frame that each is in, after frames were joined.

    `frame` says in which frame the model of each rank is. A joined frame has the clock of the frame of its lowest rank.
    Frames are joined along the pairs whose messages leave the smallest error.
    """
    models = {
        summary.rank: replace(models[summary.rank], at_ns=recorded_time(summary, summary.first_event_ns or 0)[0])
        if models[summary.rank].method == "none"
        else models[summary.rank]
        for summary in ranks
    }
    links, one_jump_ns = _links(ranks, models, frame, messages)
    joined = DisjointSets()
    neighbours: dict[int, list[int]] = {}
    for (one, other), _ in sorted(links.items(), key=lambda link: (link[1].error_ns or 0, link[0])):
        if joined.join(one, other):
            neighbours.setdefault(one, []).append(other)
            neighbours.setdefault(other, []).append(one)
    result, frame_of_rank = dict(models), dict(frame)
    done: set[int] = set()
    for summary in ranks:
        base = frame[summary.rank]
        if base in done or base not in neighbours:
            continue
        clocks: dict[int, ClockModel] = {}  # the clock of the base, against that of each frame
        waiting = [base]
        for parent in waiting:
            for child in neighbours[parent]:
                if child not in clocks and child != base:
                    link = links[parent, child]
                    if parent != base:
                        link = _chain(clocks[parent], links[child, parent], one_jump_ns)
                    clocks[child] = link
                    waiting.append(child)
        done |= {base, *clocks}
        for rank, of in frame.items():
            if of in clocks:
                result[rank] = replace(_chain(models[rank], clocks[of], one_jump_ns), method="messages")
                frame_of_rank[rank] = base
    return result, frame_of_rank


def _chain(model: ClockModel, clock: ClockModel, one_jump_ns: int) -> ClockModel:
    """Return a clock against another one. Both models are against the same third clock."""
    return replace(relative(model, clock, one_jump_ns), error_ns=(model.error_ns or 0) + (clock.error_ns or 0))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ends(Columnar):
    """Both ends of m messages between frames.

    Attributes:
        source: the frame of the sender, int64 [m].
        destination: the frame of the receiver, int64 [m].
        sent_ns: a moment before the receive can end, on the clock of the sender's frame, int64 [m].
        received_ns: when the receive ended, on the clock of the receiver's frame, int64 [m].
        error_ns: of the two times together, int64 [m].
    """

    source: Int64
    destination: Int64
    sent_ns: Int64
    received_ns: Int64
    error_ns: Int64

    def by_frames(self) -> dict[tuple[int, int], _Ends]:
        """Return the messages from each frame to each other."""
        return {pair: self.rows(rows) for pair, rows in rows_by_pair(self.source, self.destination).items()}


def _ends(
    ranks: Sequence[RankSummary], models: Mapping[int, ClockModel], frame: Mapping[int, int], messages: MatchedMessages
) -> _Ends:
    """Return the ends of the messages between different frames."""
    source, destination, sent_ns, received_ns, error_ns = np.full((5, len(messages)), ABSENT, dtype=np.int64)
    error_ns[:] = _RESOLUTION_NS
    for summary in ranks:
        model, number = models[summary.rank], frame[summary.rank]
        sends = np.flatnonzero(messages.source == summary.rank)
        receives = np.flatnonzero(messages.destination == summary.rank)
        end_ns = summary.messages.end_ns[messages.recv[receives]]
        source[sends], destination[receives] = number, number
        sent_ns[sends] = model.to_run(_sent_ns(summary)[messages.send[sends]])
        received_ns[receives] = np.where(end_ns == ABSENT, ABSENT, model.to_run(end_ns))
        for side in (sends, receives):
            error_ns[side] += model.error_ns or 0
    ends = _Ends(source=source, destination=destination, sent_ns=sent_ns, received_ns=received_ns, error_ns=error_ns)
    return ends.rows((source != destination) & (received_ns != ABSENT))


def _sent_ns(summary: RankSummary) -> Int64:
    """Return int64 [n]: for each message of a rank, if it is a send, the latest moment before its receive can end.

    That is when the send begins. A kernel that only sends one message ends when all data is on its way, so the receive
    ends after that, up to the time in which the kernel returns. A kernel of several messages may wait for others.
    """
    messages = summary.messages
    begin_ns = np.where((messages.start_ns == ABSENT) | (summary.device == "cpu"), messages.issue_ns, messages.start_ns)
    if summary.device == "cpu" or not len(messages):
        return begin_ns
    _, kernel, count = np.unique(
        np.stack((messages.start_ns, messages.end_ns)), axis=1, return_inverse=True, return_counts=True
    )
    alone = (count[kernel.reshape(-1)] == 1) & (messages.end_ns != ABSENT)
    return np.where(alone, np.maximum(begin_ns, messages.end_ns - _RETURN_NS), begin_ns)


def _links(
    ranks: Sequence[RankSummary], models: Mapping[int, ClockModel], frame: Mapping[int, int], messages: MatchedMessages
) -> tuple[dict[tuple[int, int], ClockModel], int]:
    """Return for pairs of frames (a, b) the clock of a against that of b, and the other way round.

    These are the pairs that have messages in both directions, which a few steady clocks explain. Also return how far
    apart two pairs may show the same jump of a clock.
    """
    ends = _ends(ranks, models, frame, messages)
    recorded_ns: dict[int, list[int]] = {}
    for summary in ranks:
        times_ns = np.array(recorded_time(summary, summary.first_event_ns or 0), dtype=np.int64)
        recorded_ns.setdefault(frame[summary.rank], []).extend(models[summary.rank].to_run(times_ns).tolist())
    jumps_ns = _jumps_of_frames(ranks, models, frame)
    by_frames = ends.by_frames()
    links, one_jump_ns = {}, ONE_JUMP_NS
    for (one, other), there in by_frames.items():
        back = by_frames.get((other, one))
        if one > other or back is None:
            continue
        known_ns = jumps_ns.get(one, []), jumps_ns.get(other, [])
        against_one = _link(other, there, back, recorded_ns[one], recorded_ns[other], *known_ns)
        against_other = _link(one, back, there, recorded_ns[other], recorded_ns[one], *known_ns[::-1])
        if against_one is not None and against_other is not None:
            links[other, one], links[one, other] = against_one[0], against_other[0]
            # One of the two errors contains the jump: it is that on the clock that jumps.
            one_jump_ns = max(one_jump_ns, 2 * min(against_one[1], against_other[1]))
    return links, one_jump_ns


def _jumps_of_frames(
    ranks: Sequence[RankSummary], models: Mapping[int, ClockModel], frame: Mapping[int, int]
) -> dict[int, list[int]]:
    """Return when, on the clocks of frames, the clocks of their ranks jump: by frame, where any does."""
    result: dict[int, list[int]] = {}
    jumps = ((piece.begin_ns, summary.rank) for summary in ranks for piece in pieces_of(models[summary.rank])[1:])
    for begin_ns, rank in sorted(jumps):
        of_frame = result.setdefault(frame[rank], [])
        if not of_frame or begin_ns - of_frame[-1] > ONE_JUMP_NS:
            of_frame.append(begin_ns)
    return result


def _link(
    other: int,
    there: _Ends,
    back: _Ends,
    recorded_ns: Sequence[int],
    recorded_by_other_ns: Sequence[int],
    jumps_ns: Sequence[int],
    jumps_of_other_ns: Sequence[int],
) -> tuple[ClockModel, int] | None:
    """Return the clock of a frame, `other`, against that of one frame, and how far its jumps may be off in time.

    Return None if it is not known. Messages went `there`, to the other, and `back`. The clock is known for the time
    that both frames recorded. Clocks of the frames' ranks are known to jump at `jumps_ns` and `jumps_of_other_ns`.
    """
    at_ns, about_ns = int(there.sent_ns[0]), int(there.received_ns[0] - there.sent_ns[0])
    ends_ns = [*recorded_ns, *(time_ns - about_ns for time_ns in recorded_by_other_ns)]
    ahead_ns = np.concatenate(
        (there.received_ns - there.sent_ns + there.error_ns, back.sent_ns - back.received_ns - back.error_ns)
    )
    x = (np.concatenate((there.sent_ns, back.received_ns)) - at_ns).astype(np.float64)
    is_upper = np.arange(len(ahead_ns)) < len(there)
    begin, end = float(min(ends_ns) - at_ns), float(max(ends_ns) - at_ns)
    clock = bound_clock(x, (ahead_ns - about_ns).astype(np.float64), is_upper, begin, end)
    if clock is None:
        return None
    known_x = [float(ns - at_ns) for ns in jumps_ns]
    known_x += [float(ns - about_ns - at_ns) - clock.pieces[0].offset for ns in jumps_of_other_ns]
    clock = with_possible_jumps(clock, x, is_upper, known_x)
    jumps = _jumps(clock, at_ns, about_ns, np.concatenate((there.received_ns, back.sent_ns)))
    slope = clock.slope or 0.0
    model = ClockModel(
        rank=other,
        method="messages",
        offset_ns=jumps[0].offset_ns,
        at_ns=jumps[0].at_ns,
        drift_ppm=None if clock.slope is None else slope / (1 + slope) * 1e6,
        error_ns=math.ceil(clock.error),
        jumps=tuple(jumps[1:]),
    )
    return model, math.ceil(max(piece.from_error for piece in clock.pieces))


def _jumps(clock: BoundedClock, at_ns: int, about_ns: int, on_other_ns: Int64) -> list[ClockJump]:
    """Return the pieces of a clock as jumps, of which the first one is only its beginning.

    at_ns: where x is 0. about_ns: how far the clock is ahead where it is at 0. on_other_ns: when the bounds are on it.
    """
    slope = clock.slope or 0.0
    jumps = []
    before = clock.pieces[0]
    for piece in clock.pieces:
        moment_ns = at_ns + round(piece.from_x)
        was_ahead_ns, ahead_ns = (about_ns + round(p.offset + slope * piece.from_x) for p in (before, piece))
        from_ns = moment_ns + (was_ahead_ns + ahead_ns) // 2
        between_ns = (from_ns - round(piece.from_error), from_ns + round(piece.from_error))
        if piece.between is not None:
            first, last = piece.between
            between_ns = int(on_other_ns[first]), int(on_other_ns[last])
        jumps.append(
            ClockJump(
                from_ns=from_ns,
                offset_ns=ahead_ns,
                at_ns=moment_ns + ahead_ns,
                between_ns=between_ns,
                at_least=piece.at_least,
            )
        )
        before = piece
    return jumps
