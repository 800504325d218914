"""Joins frames of clocks that no collective joins by messages: no receive ends before its send begins.

A frame is a set of ranks whose clocks are known against each other, such as the replicas of one stage of a pipeline.

A message from A to B bounds from above how far B's clock is ahead of A's, and one from B to A bounds it from below.
Together the bounds leave a set of lines over time, each of which is possible. One-way delays bound clocks in the same
way (Moon, Skelly and Towsley, "Estimation and Removal of Clock Skew from Network Delay Measurements", INFOCOM 1999).
Where no line is possible, a clock jumps, and nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracekit.job.clocks.collective_samples import relative
from tracekit.job.clocks.fit import LARGEST_DRIFT
from tracekit.job.clocks.measured import recorded_time
from tracekit.model.columnar import Columnar
from tracekit.model.communication import MatchedMessages
from tracekit.model.events import ABSENT, Float64, Int64
from tracekit.model.run import ClockModel
from tracekit.model.summary import RankSummary
from tracekit.stats.connected_components import DisjointSets
from tracekit.stats.rows_by_key import rows_by_key

_RESOLUTION_NS = 1000  # of the time stamps of a message's two ends, together
_RETURN_NS = 5000  # in which a kernel ends when it is done
_INTERVALS = 256  # of the time axis; the tightest bound of each is enough
_ROUNDS = 50  # of golden sections, each of which leaves 0.618 of an interval
_GOLDEN = (math.sqrt(5) - 1) / 2


def join_by_messages(
    ranks: Sequence[RankSummary], models: Mapping[int, ClockModel], frame: Mapping[int, int], messages: MatchedMessages
) -> tuple[dict[int, ClockModel], dict[int, int]]:
    """Return models of all ranks, and the frame that each is in, after frames were joined.

    `frame` says in which frame the model of each rank is. A joined frame has the clock of the frame of its lowest rank.
    Frames are joined along the pairs whose messages leave the smallest error.
    """
    recorded_ns = {summary.rank: recorded_time(summary, summary.first_event_ns or 0) for summary in ranks}
    models = {
        rank: replace(model, at_ns=recorded_ns[rank][0]) if model.method == "none" else model
        for rank, model in models.items()
    }
    clock_of_pair = _clocks_of_pairs(ranks, models, frame, messages, recorded_ns)
    joined = DisjointSets()
    neighbours: dict[int, list[int]] = {}
    for (one, other), _ in sorted(clock_of_pair.items(), key=lambda pair: (pair[1].error_ns or 0, pair[0])):
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
                    clock = clock_of_pair[parent, child]
                    clocks[child] = clock if parent == base else _chain(clocks[parent], clock_of_pair[child, parent])
                    waiting.append(child)
        done |= {base, *clocks}
        for rank, of in frame.items():
            if of in clocks:
                result[rank] = replace(_chain(models[rank], clocks[of]), method="messages")
                frame_of_rank[rank] = base
    return result, frame_of_rank


def _chain(model: ClockModel, clock: ClockModel) -> ClockModel:
    """Return a clock against another one. Both models are against the same third clock."""
    return replace(relative(model, clock), error_ns=(model.error_ns or 0) + (clock.error_ns or 0))


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


def _clocks_of_pairs(
    ranks: Sequence[RankSummary],
    models: Mapping[int, ClockModel],
    frame: Mapping[int, int],
    messages: MatchedMessages,
    recorded_ns: Mapping[int, tuple[int, int]],
) -> dict[tuple[int, int], ClockModel]:
    """Return for pairs of frames (a, b) the clock of a against that of b, and the other way round.

    These are the pairs that have messages in both directions, which steady clocks explain.
    """
    ends = _ends(ranks, models, frame, messages)
    by_frames = {pair: ends.rows(rows) for pair, rows in rows_by_key(ends.source, ends.destination).items()}
    recorded: dict[int, list[int]] = {}  # when ranks of each frame begin and end their recordings, on its clock
    for rank, times_ns in recorded_ns.items():
        on_frame_ns = models[rank].to_run(np.array(times_ns, dtype=np.int64)).tolist()
        recorded.setdefault(frame[rank], []).extend(on_frame_ns)
    clock_of_pair = {}
    for (one, other), there in by_frames.items():
        back = by_frames.get((other, one))
        if one > other or back is None:
            continue
        against_one = _clock_of_pair(other, there, back, recorded[one], recorded[other])
        against_other = _clock_of_pair(one, back, there, recorded[other], recorded[one])
        if against_one is not None and against_other is not None:
            clock_of_pair[other, one], clock_of_pair[one, other] = against_one, against_other
    return clock_of_pair


def _clock_of_pair(
    other: int, there: _Ends, back: _Ends, one_recorded_ns: Sequence[int], other_recorded_ns: Sequence[int]
) -> ClockModel | None:
    """Return the clock of a frame, `other`, against that of one frame; None if no line explains the messages.

    Messages went `there`, to the other, and `back`. The clock is known for the time that both frames recorded.
    """
    at_ns, about_ns = int(there.sent_ns[0]), int(there.received_ns[0] - there.sent_ns[0])
    ends_ns = [*one_recorded_ns, *(time_ns - about_ns for time_ns in other_recorded_ns)]
    bounds = _Bounds.of(
        high_x=(there.sent_ns - at_ns).astype(np.float64),
        high=(there.received_ns - there.sent_ns + there.error_ns - about_ns).astype(np.float64),
        low_x=(back.received_ns - at_ns).astype(np.float64),
        low=(back.sent_ns - back.received_ns - back.error_ns - about_ns).astype(np.float64),
    )
    line = bounds.middle(float(min(ends_ns) - at_ns), float(max(ends_ns) - at_ns), wall=float(-about_ns))
    if line is None:
        return None
    ahead_ns = about_ns + round(line.offset)
    return ClockModel(
        rank=other,
        method="messages",
        offset_ns=ahead_ns,
        at_ns=at_ns + ahead_ns,
        drift_ppm=None if line.slope is None else line.slope / (1 + line.slope) * 1e6,
        error_ns=math.ceil(line.error),
    )


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A line near the middle of all lines that bounds leave.

    Attributes:
        offset: where it meets x = 0.
        slope: None if the bounds leave a slope of 0; the line is then level.
        error: the largest distance between this line and possible ones.
    """

    offset: float
    slope: float | None
    error: float


@dataclass(frozen=True, kw_only=True, eq=False)
class _Bounds:
    """The tightest bounds: float64 [k] and [m]. `x` and bounds are in ns."""

    low_x: Float64
    low: Float64
    high_x: Float64
    high: Float64

    @classmethod
    def of(cls, *, low_x: Float64, low: Float64, high_x: Float64, high: Float64) -> _Bounds:
        high_x, high = _tightest(high_x, high)
        low_x, low = _tightest(low_x, -low)
        return cls(low_x=low_x, low=-low, high_x=high_x, high=high)

    def middle(self, begin: float, end: float, *, wall: float) -> _Line | None:
        """Return the middle of the lines that are possible from `begin` to `end`; None if there is none.

        The level line at `wall` is taken if it is possible: wall clocks are then one clock. No slope is steeper than
        `LARGEST_DRIFT`.
        """
        best = _peak(self._gap, -LARGEST_DRIFT, LARGEST_DRIFT)
        if self._gap(best) < 0:
            return None
        slopes = _edge(self._gap, best, -LARGEST_DRIFT), _edge(self._gap, best, LARGEST_DRIFT)
        slope = None if slopes[0] <= 0 <= slopes[1] else sum(slopes) / 2
        # The highest of many lines is a convex function of x, so its distance from one line is largest at an end.
        extents = [(x, *self._extent(x, *slopes)) for x in (begin, end)]
        top = max(most - (slope or 0.0) * x for x, _, most in extents)
        bottom = min(least - (slope or 0.0) * x for x, least, _ in extents)
        offset = wall if slope is None and self._bottom(0.0) <= wall <= self._top(0.0) else (top + bottom) / 2
        return _Line(offset=offset, slope=slope, error=max(top - offset, offset - bottom))

    def _top(self, slope: float) -> float:
        """Return where the highest line of a slope meets x = 0."""
        return float((self.high - slope * self.high_x).min())

    def _bottom(self, slope: float) -> float:
        """Return where the lowest line of a slope meets x = 0."""
        return float((self.low - slope * self.low_x).max())

    def _gap(self, slope: float) -> float:
        """Return by how much lines of a slope can be shifted; it is negative if none is possible."""
        return self._top(slope) - self._bottom(slope)

    def _extent(self, x: float, flattest: float, steepest: float) -> tuple[float, float]:
        """Return the lowest and the highest that a possible line is at `x`."""
        highest = _peak(lambda slope: self._top(slope) + slope * x, flattest, steepest)
        lowest = _peak(lambda slope: -self._bottom(slope) - slope * x, flattest, steepest)
        return self._bottom(lowest) + lowest * x, self._top(highest) + highest * x


def _tightest(x: Float64, bound: Float64) -> tuple[Float64, Float64]:
    """Return the lowest bound of each of many intervals of x."""
    if len(x) <= _INTERVALS:
        return x, bound
    interval = ((x - x.min()) * (_INTERVALS / max(float(np.ptp(x)), 1.0))).astype(np.int64)
    order = np.lexsort((bound, interval))
    first = order[np.diff(interval[order], prepend=-1) != 0]
    return x[first], bound[first]


def _peak(function: Callable[[float], float], begin: float, end: float) -> float:
    """Return where a concave function is largest, by golden sections (Kiefer, "Sequential Minimax Search for a
    Maximum", 1953).
    """
    left, right = end - _GOLDEN * (end - begin), begin + _GOLDEN * (end - begin)
    at_left, at_right = function(left), function(right)
    for _ in range(_ROUNDS):
        if at_left < at_right:
            begin, left, at_left = left, right, at_right
            right = begin + _GOLDEN * (end - begin)
            at_right = function(right)
        else:
            end, right, at_right = right, left, at_left
            left = end - _GOLDEN * (end - begin)
            at_left = function(left)
    return (begin + end) / 2


def _edge(function: Callable[[float], float], inside: float, outside: float) -> float:
    """Return how far towards `outside` a concave function that is not negative `inside` stays so."""
    if function(outside) >= 0:
        return outside
    for _ in range(_ROUNDS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if function(middle) >= 0 else (inside, middle)
    return inside
