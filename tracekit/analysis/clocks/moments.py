"""Moments that the clocks of several ranks show: the ends of synchronising collectives.

No rank leaves a synchronising collective before the last has entered, and all leave together, up to some microseconds.
Members of other collectives leave early: the root of a broadcast, the senders of a gather. Kernels of messages end when
their message is through, and kernels of an unknown kind may be such kernels. Ranks that exchange unequal shares end at
different times, so such exchanges serve only where there is too little else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracekit.analysis.clocks.jumps import Lateness
from tracekit.model.collectives import MatchedGroup
from tracekit.model.communication import KINDS, SYNCHRONISING
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.summary import RankSummary

__all__ = ["FEWEST_MOMENTS", "Moments"]

_ALL_TO_ALL = KINDS.index("all_to_all")
_QUARTER = 4
_SET_BACK_NS = 100_000  # collectives that overlap may end in another order on one rank, not by as much

FEWEST_MOMENTS = 3
"""Moments needed to contradict a measurement, or to show their spread."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Ends of n synchronising collectives of k ranks.

    Attributes:
        end_ns: int64 [k, n], on each rank's clock.
        duration_ns: int64 [k, n], which each rank spends in them.
        there: bool [k, n].
        alike: int64 [n], a number that collectives of one kind and size have in common.
        set_back: bool [k], whether the ends of a rank go back where those of others do not.
        transfer_ns: the median time that the last rank to enter spends in the collective; this needs no common clock.
        uneven: ranks may exchange unequal shares, and then leave at times that differ by a part of the transfer.
        content: a sort key of groups that does not depend on the numbers of their ranks; the best come first.
    """

    ranks: tuple[int, ...]
    end_ns: Int64
    duration_ns: Int64
    there: Bool
    alike: Int64
    set_back: Bool
    transfer_ns: int
    uneven: bool
    content: tuple[int, ...]

    @property
    def count(self) -> int:
        return int(self.end_ns.shape[1])

    @classmethod
    def of(cls, ranks: Sequence[RankSummary], group: MatchedGroup) -> Moments | None:
        """Return the moments of a group; None when it synchronises no two ranks."""
        collectives = {summary.rank: summary.collectives for summary in ranks}
        synchronises = ((group.row != ABSENT).sum(axis=0) > 1) & SYNCHRONISING[group.kind]
        exchanges = np.flatnonzero(synchronises & (group.kind == _ALL_TO_ALL))
        unequal = np.zeros(len(synchronises), dtype=np.bool_)
        unequal[exchanges] = ~_equal_shares(
            [collectives[rank].size_bytes for rank in group.ranks.tolist()], group.row[:, exchanges]
        )
        chosen = np.flatnonzero(synchronises & ~unequal)
        if len(chosen) < FEWEST_MOMENTS:
            chosen = np.flatnonzero(synchronises)
        if not len(chosen):
            return None
        row = group.row[:, chosen]
        there = row != ABSENT
        start_ns, end_ns = np.zeros((2, *row.shape), dtype=np.int64)
        for r, rank in enumerate(group.ranks.tolist()):
            present = there[r]
            start_ns[r, present] = collectives[rank].start_ns[row[r, present]]
            end_ns[r, present] = collectives[rank].end_ns[row[r, present]]
        return cls.build(
            tuple(group.ranks.tolist()),
            end_ns,
            end_ns - start_ns,
            there,
            alike=np.unique(np.stack((group.kind[chosen], group.size_bytes[chosen])), axis=1, return_inverse=True)[1],
            set_back=_set_back(end_ns, there),
            uneven=bool(unequal[chosen].any()),
        )

    @classmethod
    def build(
        cls,
        ranks: tuple[int, ...],
        end_ns: Int64,
        duration_ns: Int64,
        there: Bool,
        *,
        alike: Int64,
        set_back: Bool,
        uneven: bool,
    ) -> Moments:
        """Return moments, given all that does not follow from these."""
        transfer_ns = int(np.median(np.where(there, duration_ns, np.iinfo(np.int64).max).min(axis=0)))
        return cls(
            ranks=ranks,
            end_ns=end_ns,
            duration_ns=duration_ns,
            there=there,
            alike=alike.reshape(-1),
            set_back=set_back,
            transfer_ns=transfer_ns,
            uneven=uneven,
            content=(int(uneven), -end_ns.shape[1], transfer_ns, int(duration_ns.sum())),
        )

    def lateness(self, place: int, chosen: Bool) -> Lateness:
        """Return by how much a rank, given as a place, and most others may have left `chosen` collectives late.

        chosen: bool [n]; the rank is in all of these. The last rank to enter a collective stays for the transfer, and
        the others for longer. A rank that leaves late stays longer, too. The transfer takes as long as the shortest
        quarter of the collectives alike does on the others.
        """
        ascending_ns, of_rank_ns = self._ascending_ns[:, chosen], self.duration_ns[place, chosen]
        shortest_ns = np.where(ascending_ns[0] == of_rank_ns, ascending_ns[1], ascending_ns[0])
        others = self.there[:, chosen].sum(axis=0) - 1
        middle, columns = (others - 1) // 2, np.arange(len(of_rank_ns))
        middle += ascending_ns[middle, columns] >= of_rank_ns  # without the rank itself
        alike = self.alike[chosen]
        ordered = np.lexsort((shortest_ns, alike))
        first = np.searchsorted(alike[ordered], alike)
        count = np.searchsorted(alike[ordered], alike, side="right") - first
        transfer_ns = np.minimum(shortest_ns[ordered[first + count // _QUARTER]], shortest_ns)
        return Lateness(of_rank_ns - transfer_ns, ascending_ns[middle, columns] - transfer_ns, ascending_ns[0])

    @cached_property
    def _ascending_ns(self) -> Int64:
        """The durations of each collective, ascending, int64 [k, n]; those of ranks that are not there come last."""
        return np.sort(np.where(self.there, self.duration_ns, np.iinfo(np.int64).max), axis=0)


def _set_back(end_ns: Int64, there: Bool) -> Bool:
    """Return bool [k]: whether a rank's clock was set back between two of its collectives, in order of launch.

    Collectives may end in another order than that of their launches. Then they do so on all ranks.
    """
    change_ns = np.where(there[:, 1:] & there[:, :-1], np.diff(end_ns, axis=1), 0)
    some = np.flatnonzero((change_ns < 0).any(axis=0))
    change_ns = change_ns[:, some]
    return np.asarray(((change_ns < 0) & (change_ns.max(axis=0) - change_ns > _SET_BACK_NS)).any(axis=1))


def _equal_shares(sizes_of_ranks: Sequence[Int64], row: Int64) -> Bool:
    """Return bool [m]: whether all members of an exchange show the same size.

    `sizes_of_ranks` are the sizes of each rank's collectives, int64 [each]. `row` is int64 [k, m].
    """
    sizes = np.full(row.shape, ABSENT, dtype=np.int64)
    for r, rank_sizes in enumerate(sizes_of_ranks):
        there = row[r] != ABSENT
        sizes[r, there] = rank_sizes[row[r, there]]
    largest = sizes.max(axis=0, initial=ABSENT)
    return np.asarray((largest != ABSENT) & ((sizes == largest) | (row == ABSENT)).all(axis=0))
