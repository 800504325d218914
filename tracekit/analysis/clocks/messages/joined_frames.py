"""Joins frames of clocks that no collective joins, by what their messages prove.

A frame is a set of ranks whose clocks are known against each other, such as the replicas of one stage of a pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tracekit.analysis.clocks.measured import recorded_time
from tracekit.analysis.clocks.messages.bounds import BoundedClock, bound_clock
from tracekit.analysis.clocks.messages.known_jumps import KnownJump, with_known_jumps
from tracekit.analysis.clocks.reference import ONE_JUMP_NS, jumps_of, relative
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
    """Return the ends of the messages between different frames, but for those while a rank's clock jumps."""
    source, destination, sent_ns, received_ns, error_ns = np.full((5, len(messages)), ABSENT, dtype=np.int64)
    error_ns[:] = _RESOLUTION_NS
    is_known = np.ones(len(messages), dtype=np.bool_)
    for summary in ranks:
        model, number = models[summary.rank], frame[summary.rank]
        sends = np.flatnonzero(messages.source == summary.rank)
        receives = np.flatnonzero(messages.destination == summary.rank)
        end_ns = summary.messages.end_ns[messages.recv[receives]]
        source[sends], destination[receives] = number, number
        begin_ns = _sent_ns(summary)[messages.send[sends]]
        sent_ns[sends] = model.to_run(begin_ns)
        received_ns[receives] = np.where(end_ns == ABSENT, ABSENT, model.to_run(end_ns))
        for side, shown_ns in ((sends, begin_ns), (receives, end_ns)):
            error_ns[side] += model.error_ns or 0
            for jump in model.jumps:
                first_ns, last_ns = sorted(jump.bounds_ns)
                is_known[side] &= (shown_ns <= first_ns) | (shown_ns >= last_ns)
    ends = _Ends(source=source, destination=destination, sent_ns=sent_ns, received_ns=received_ns, error_ns=error_ns)
    return ends.rows((source != destination) & (received_ns != ABSENT) & is_known)


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
    by_frames = _ends(ranks, models, frame, messages).by_frames()
    frames = _frames(ranks, models, frame)
    links, one_jump_ns = {}, ONE_JUMP_NS
    for (one, other), there in by_frames.items():
        back = by_frames.get((other, one))
        if one > other or back is None:
            continue
        against_one = _link(other, there, back, frames[one], frames[other])
        against_other = _link(one, back, there, frames[other], frames[one])
        if against_one is not None and against_other is not None:
            links[other, one], links[one, other] = against_one[0], against_other[0]
            # One of the two errors contains the jump: it is that on the clock that jumps.
            one_jump_ns = max(one_jump_ns, 2 * min(against_one[1], against_other[1]))
    return links, one_jump_ns


@dataclass(kw_only=True)
class _Frame:
    """What is known of a frame, in ns of its clock.

    Attributes:
        recorded_ns: when the recordings of its ranks begin and end.
        jumps: of its ranks' clocks: between which times each is, ascending, and by how much it jumps ahead. Those that
            several ranks show are there once, by their times and sizes in 100 us.
    """

    recorded_ns: list[int] = field(default_factory=list)
    jumps: dict[tuple[int, ...], tuple[int, int, int]] = field(default_factory=dict)


def _frames(
    ranks: Sequence[RankSummary], models: Mapping[int, ClockModel], frame: Mapping[int, int]
) -> dict[int, _Frame]:
    """Return the frames by number."""
    result = {number: _Frame() for number in frame.values()}
    for summary in ranks:
        model, of_frame = models[summary.rank], result[frame[summary.rank]]
        times_ns = np.array(recorded_time(summary, summary.first_event_ns or 0), dtype=np.int64)
        of_frame.recorded_ns.extend(model.to_run(times_ns).tolist())
        for jump in jumps_of(model):
            known_ns = *jump.between_ns, jump.by_ns
            of_frame.jumps.setdefault(tuple(ns // ONE_JUMP_NS for ns in known_ns), known_ns)
    return result


def _link(
    other: int, there: _Ends, back: _Ends, one_frame: _Frame, other_frame: _Frame
) -> tuple[ClockModel, int] | None:
    """Return the clock of a frame, `other`, against that of one frame, and how far its jumps may be off in time.

    Return None if it is not known. Messages went `there`, to the other, and `back`. The clock is known for the time
    that both frames recorded.
    """
    at_ns, about_ns = int(there.sent_ns[0]), int(there.received_ns[0] - there.sent_ns[0])
    ends_ns = [*one_frame.recorded_ns, *(time_ns - about_ns for time_ns in other_frame.recorded_ns)]
    ahead_ns = np.concatenate(
        (there.received_ns - there.sent_ns + there.error_ns, back.sent_ns - back.received_ns - back.error_ns)
    )
    bounds = (
        (np.concatenate((there.sent_ns, back.received_ns)) - at_ns).astype(np.float64),
        (ahead_ns - about_ns).astype(np.float64),
        np.arange(len(ahead_ns)) < len(there),
    )
    clock = bound_clock(*bounds, float(min(ends_ns) - at_ns), float(max(ends_ns) - at_ns))
    if clock is None:
        return None
    known = [KnownJump(float(begin - at_ns), float(end - at_ns), by) for begin, end, by in one_frame.jumps.values()]
    for *between_ns, by_ns in other_frame.jumps.values():
        first, last = (clock.x_of(float(ns - about_ns - at_ns)) for ns in between_ns)
        known.append(KnownJump(min(first, last), max(first, last), -by_ns))
    clock = with_known_jumps(clock, *bounds, known)
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
                at_least=not piece.is_unproven and (before.is_one_sided or piece.is_one_sided),
                unproven=piece.is_unproven,
            )
        )
        before = piece
    return jumps
