"""At what rate the clock of each rank runs against those of most ranks: a second of it may be 1.05 seconds of theirs.

NTP slews a clock by at most 500 ppm (RFC 5905, MAXFREQ), and `fit` knows such drifts. A rate that is far from 1 has
another cause: times in an odd unit, a device's clock that is converted wrongly, or chrony, which may slew by 8 % for a
while (chrony.conf, maxslewrate). Durations of such a rank are wrong by as much.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tracekit.analysis.stats.rows_by_pair import rows_by_pair
from tracekit.model.collectives import MatchedGroup
from tracekit.model.communication import SYNCHRONISING_WITH_ANY_SHARES
from tracekit.model.events import ABSENT, Float64, Int64
from tracekit.model.messages import MatchedMessages
from tracekit.model.summary import RankSummary

_LARGEST_ERROR = 0.01  # of a rate: as of a step in which a clock jumps, it changes no answer
_FEWEST_STEPS = 3
_FEWEST_MOMENTS = 5  # fewer are on a line by chance
_PRECISION = 0.1  # of how far a rate is from 1: by as much moments may be off the line
_AGREEING = 2 / 3

__all__ = ["odd_rates"]


class _Rates(NamedTuple):
    """How long a time is on the clocks of some ranks, against one of them or a mean of them; NaN if not known."""

    ranks: tuple[int, ...]
    rate: Float64


def odd_rates(
    ranks: Sequence[RankSummary], collectives: Sequence[MatchedGroup], messages: MatchedMessages
) -> dict[int, float]:
    """Return the ranks whose clocks run at another rate than the others': the factor by which their times differ.

    Two thirds of all ranks must be known to agree. Nothing is known of a rank in fewer than three steps.
    """
    summaries = {summary.rank: summary for summary in ranks}
    related: dict[int, list[_Rates]] = {}
    for rates in (*_by_collectives(summaries, collectives), *_by_messages(summaries, messages)):
        for rank, rate in zip(rates.ranks, rates.rate.tolist(), strict=True):
            if np.isfinite(rate):
                related.setdefault(rank, []).append(rates)
    fewest_agreeing = _AGREEING * sum(summary.is_measured for summary in ranks)
    for clocks in _connected(related):
        usual = statistics.median_low(clocks.values())
        against_usual = {rank: rate / usual for rank, rate in clocks.items()}
        agreeing = {rank for rank, rate in against_usual.items() if not _is_odd(rate)}
        if len(agreeing) >= fewest_agreeing:
            return {
                rank: rate
                for rank, rate in against_usual.items()
                if rank not in agreeing and _differs_from_all(rank, agreeing, related[rank])
            }
    return {}


def _is_odd(rate: float) -> bool:
    return abs(rate - 1) > _LARGEST_ERROR


def _differs_from_all(rank: int, others: Collection[int], related: Sequence[_Rates]) -> bool:
    """Return whether the clock of a rank differs from each of the others to which one of its relations leads."""
    return all(
        _is_odd(float(rates.rate[rates.ranks.index(rank)]) / rate)
        for rates in related
        for other, rate in zip(rates.ranks, rates.rate.tolist(), strict=True)
        if other in others and np.isfinite(rate)
    )


def _connected(related: Mapping[int, Sequence[_Rates]]) -> Iterator[dict[int, float]]:
    """Yield the rates of the clocks that are related, directly or by others, against one of them, by rank."""
    seen: set[int] = set()
    used: set[int] = set()  # rates, by `id`: a large group is looked at once, not once per rank
    for first in related:
        if first in seen:
            continue
        clocks, waiting = {first: 1.0}, deque([first])
        while waiting:
            known = waiting.popleft()
            for rates in related[known]:
                if id(rates) in used:
                    continue
                used.add(id(rates))
                against = clocks[known] / float(rates.rate[rates.ranks.index(known)])
                for other, rate in zip(rates.ranks, rates.rate.tolist(), strict=True):
                    if other not in clocks and np.isfinite(rate):
                        clocks[other] = against * rate
                        waiting.append(other)
        seen |= clocks.keys()
        yield clocks


def _by_collectives(summaries: dict[int, RankSummary], collectives: Sequence[MatchedGroup]) -> Iterator[_Rates]:
    """Yield the rates that the ends of synchronising collectives show."""
    for matched in collectives:
        there = matched.row != ABSENT
        members = np.flatnonzero(there.any(axis=1))
        shared = np.flatnonzero(
            SYNCHRONISING_WITH_ANY_SHARES[matched.kind] & there[members].all(axis=0) & (matched.step != ABSENT)
        )
        chosen = shared[_first_and_last(matched.step[shared])]
        if len(members) > 1 and len(chosen):
            numbers = tuple(matched.ranks[members].tolist())
            ends_ns = np.stack(
                [
                    summaries[rank].collectives.end_ns[matched.row[member, chosen]]
                    for rank, member in zip(numbers, members, strict=True)
                ]
            )
            yield _Rates(numbers, _rates(ends_ns))


def _by_messages(summaries: dict[int, RankSummary], messages: MatchedMessages) -> Iterator[_Rates]:
    """Yield the rates that the ends of messages show of two ranks, if those of both ways agree.

    Messages of one way do not tell: a rank may fall behind what it receives.
    """
    in_steps = np.flatnonzero(messages.step != ABSENT)
    one_way: dict[tuple[int, int], Float64] = {}
    pairs = rows_by_pair(messages.source[in_steps], messages.destination[in_steps])
    for (source, destination), of_pair in pairs.items():
        rows = in_steps[of_pair[_first_and_last(messages.step[in_steps[of_pair]])]]
        ends_ns = np.stack(
            [
                summaries[source].messages.end_ns[messages.send[rows]],
                summaries[destination].messages.end_ns[messages.recv[rows]],
            ]
        )
        one_way[source, destination] = _rates(ends_ns[:, (ends_ns != ABSENT).all(axis=0)])
    for (source, destination), there in one_way.items():
        back = one_way.get((destination, source))
        if source < destination and back is not None:
            ratio, ratio_back = float(there[1] / there[0]), float(back[0] / back[1])
            if abs(ratio - ratio_back) <= _PRECISION * max(abs(ratio - 1), _LARGEST_ERROR):
                yield _Rates((source, destination), np.array([1.0, (ratio + ratio_back) / 2]))


def _first_and_last(step: Int64) -> Int64:
    """Return the places of the first and the last item of each step, ascending; none if the steps are too few.

    Items of a step follow each other.
    """
    last = np.flatnonzero(np.diff(step))
    if len(last) + 1 < _FEWEST_STEPS:
        return np.empty(0, dtype=np.int64)
    return np.unique(np.concatenate(([0], last, last + 1, [len(step) - 1])))


def _rates(moments_ns: Int64) -> Float64:
    """Return how long the clocks of k ranks show a second, float64 [k], given n moments on each of them, int64 [k, n].

    It is against the median clock. NaN stands for a clock whose moments are not on a line: it jumps, or its rank does
    not leave its collectives with the others. The line must show to a tenth how far a rate is from 1. Of a rate near 1
    it is enough that it cannot be far from it. If all clocks agree on the time from the first to the last moment, what
    they show between these does not matter.
    """
    count, moments = moments_ns.shape
    if moments < _FEWEST_MOMENTS:
        return np.full(count, np.nan)
    whole_ns = moments_ns[:, -1] - moments_ns[:, 0]
    if np.ptp(whole_ns) <= _LARGEST_ERROR * whole_ns.max():  # as in nearly every run
        return np.ones(count)
    since_ns = (moments_ns - moments_ns[:, :1]).astype(np.float64)
    common_ns = np.median(since_ns, axis=0)
    order = np.argsort(common_ns, kind="stable")
    since_ns, common_ns = since_ns[:, order], common_ns[order]
    half = moments // 2
    elapsed_ns = np.maximum(common_ns[half:] - common_ns[:-half], 1.0)
    rate = np.median((since_ns[:, half:] - since_ns[:, :-half]) / elapsed_ns, axis=1)
    level_ns = since_ns - rate[:, None] * common_ns
    off_ns = np.abs(level_ns - np.median(level_ns, axis=1, keepdims=True)).max(axis=1)
    off = np.abs(rate - 1)
    tolerated = np.where(off > _LARGEST_ERROR, _PRECISION * off, _LARGEST_ERROR)
    return np.where((rate > 0) & (off_ns <= tolerated * np.ptp(common_ns)), rate, np.nan)
