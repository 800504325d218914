"""When the clocks of several ranks can be compared: samples are the ends of synchronising collectives.

No rank leaves a synchronising collective before the last has entered, and all leave together, up to some microseconds.
Members of other collectives leave early: the root of a broadcast, the senders of a gather. Kernels of messages end when
their message is through, and kernels of an unknown kind may be such kernels. Ranks that exchange unequal shares end at
different times, so such exchanges serve only where there is too little else.

`relative` gives the clock of one rank against that of another, from both clocks against a third.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.model.communication import KINDS, SYNCHRONISING, MatchedGroup
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.run import ClockModel
from tracekit.model.summary import RankSummary

_ALL_TO_ALL = KINDS.index("all_to_all")

FEWEST_SAMPLES = 3
"""Samples needed to contradict a measurement, or to show their spread."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CollectiveSamples:
    """Samples of the clocks of k ranks: the ends of n synchronising collectives.

    Attributes:
        end_ns: int64 [k, n], on each rank's clock.
        duration_ns: int64 [k, n], which each rank spends in them.
        there: bool [k, n].
        transfer_ns: the median time that the last rank to enter spends in the collective; this needs no common clock.
        uneven: ranks may exchange unequal shares, and then leave at times that differ by a part of the transfer.
        content: a sort key of groups that does not depend on the numbers of their ranks; the best come first.
    """

    ranks: tuple[int, ...]
    end_ns: Int64
    duration_ns: Int64
    there: Bool
    transfer_ns: int
    uneven: bool
    content: tuple[int, ...]

    @property
    def count(self) -> int:
        return int(self.end_ns.shape[1])

    @classmethod
    def of(cls, ranks: Sequence[RankSummary], group: MatchedGroup) -> CollectiveSamples | None:
        """Return the samples of a group; None when it synchronises no two ranks."""
        collectives = {summary.rank: summary.collectives for summary in ranks}
        synchronises = ((group.row != ABSENT).sum(axis=0) > 1) & SYNCHRONISING[group.kind]
        exchanges = np.flatnonzero(synchronises & (group.kind == _ALL_TO_ALL))
        unequal = np.zeros(len(synchronises), dtype=np.bool_)
        unequal[exchanges] = ~_equal_shares(
            [collectives[rank].size_bytes for rank in group.ranks.tolist()], group.row[:, exchanges]
        )
        chosen = np.flatnonzero(synchronises & ~unequal)
        if len(chosen) < FEWEST_SAMPLES:
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
        duration_ns, uneven = end_ns - start_ns, bool(unequal[chosen].any())
        transfer_ns = int(np.median(np.where(there, duration_ns, np.iinfo(np.int64).max).min(axis=0)))
        return cls(
            ranks=tuple(group.ranks.tolist()),
            end_ns=end_ns,
            duration_ns=duration_ns,
            there=there,
            transfer_ns=transfer_ns,
            uneven=uneven,
            content=(int(uneven), -end_ns.shape[1], transfer_ns, int(duration_ns.sum())),
        )


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


def relative(model: ClockModel, reference: ClockModel) -> ClockModel:
    """Return the model of a rank against the reference. Both are given in one frame."""
    # Errors of fits are against the ends that all ranks share. Errors of measurements add up.
    error_ns = (model.error_ns or 0) + (reference.error_ns or 0 if reference.method == "probe" else 0)
    if model.rank == reference.rank:
        drift_ppm = None if model.drift_ppm is None else 0.0
        error_ns = 0 if model.method == "probe" else error_ns
        return ClockModel(
            rank=model.rank, method=model.method, at_ns=model.at_ns, drift_ppm=drift_ppm, error_ns=error_ns
        )
    drift, reference_drift = ((clock.drift_ppm or 0.0) * 1e-6 for clock in (model, reference))
    since_ns = model.at_ns - model.offset_ns + reference.offset_ns - reference.at_ns
    on_reference_ns = reference.at_ns + since_ns + round(since_ns * (reference_drift / (1 - reference_drift)))
    drift = (drift - reference_drift) / (1 - reference_drift)
    unknown = None in (model.drift_ppm, reference.drift_ppm) and not drift
    return ClockModel(
        rank=model.rank,
        method=model.method,
        offset_ns=model.at_ns - on_reference_ns,
        at_ns=model.at_ns,
        drift_ppm=None if unknown else drift * 1e6,
        error_ns=error_ns,
    )
