"""How skews and transfer times of collectives are spread, and how late each rank comes to those of each step.

The table of collectives has medians and maxima of the same times. What draws more than a table asks here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.communication.collectives import GroupTimes, group_times, groups_with_matches
from tracekit.model.collectives import MatchedGroup
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import Run

__all__ = ["CollectiveTimesOfSize", "TimesOfGroup", "collective_distributions", "lateness_by_step", "times_of_groups"]

TimesOfGroup = tuple[MatchedGroup, GroupTimes]
"""A group, and the times of its instances in which all of its ranks take part."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CollectiveTimesOfSize:
    """The n instances of one kind and size in one group: a row of the table of collectives.

    Attributes:
        size_bytes: of the full array; None where it is not known.
        skew_ns: int64 [n], from the first to the last arrival.
        transfer_ns: int64 [n].
        error_ns: uncertainty of a skew; None where clocks cannot be compared.
    """

    group: int
    kind: str
    size_bytes: int | None
    skew_ns: Int64
    transfer_ns: Int64
    error_ns: int | None


def times_of_groups(run: Run) -> list[TimesOfGroup]:
    """Return the times of the collectives of each group with at least two ranks."""
    return [(matched, group_times(run, matched)) for matched in groups_with_matches(run)]


def collective_distributions(groups: Iterable[TimesOfGroup]) -> Iterator[CollectiveTimesOfSize]:
    """Yield the times of each kind and size of collective in each group."""
    for matched, times in groups:
        pairs = np.stack((matched.kind[times.place].astype(np.int64), matched.size_bytes[times.place]))
        different, which = np.unique(pairs, axis=1, return_inverse=True)
        for i, (kind, size) in enumerate(different.T.tolist()):
            here = np.flatnonzero(which.reshape(-1) == i)
            yield CollectiveTimesOfSize(
                group=matched.group,
                kind=KINDS[kind],
                size_bytes=None if size == ABSENT else size,
                skew_ns=times.skew_ns[here],
                transfer_ns=times.transfer_ns[here],
                error_ns=times.error_ns,
            )


def lateness_by_step(groups: Iterable[TimesOfGroup]) -> dict[tuple[int, int], int]:
    """Return how late each rank came to the collectives of each step, by rank and step, in ns.

    It is the longest time after the first rank of a collective, over the collectives of the step. What is below the
    uncertainty of the clocks is 0. A rank without collectives in a step, or whose clock cannot be compared, has no
    value.
    """
    latest_ns: dict[tuple[int, int], int] = {}
    for matched, times in groups:
        if times.error_ns is None or not len(times.place):
            continue
        late_ns = np.where(times.late_ns > times.error_ns, times.late_ns, 0)
        step = matched.step[times.place]
        order = np.argsort(step, kind="stable")
        numbers, first = np.unique(step[order], return_index=True)
        of_step_ns = np.maximum.reduceat(late_ns[:, order], first, axis=1)
        for rank, of_rank_ns in zip(matched.ranks.tolist(), of_step_ns.tolist(), strict=True):
            for number, value_ns in zip(numbers.tolist(), of_rank_ns, strict=True):
                key = (rank, number)
                latest_ns[key] = max(latest_ns.get(key, 0), value_ns)
    return latest_ns
