"""Which GPU ranks share no collective with the others of their groups, as kernels or what identifies them are lost.

A rank without its collectives would seem idle while they ran. Without a common collective its clock is not known,
nor are those of ranks that it connects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tracekit.model.communication import SYNCHRONISING_WITH_ANY_SHARES, GroupKey
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.summary import RankSummary

_SAMPLED = 16
_SEVERAL = 2
_REASON = "it shares no collective with the other ranks of its groups, which have some in its steps"

__all__ = ["ranks_that_share_no_collective"]

_Rows = dict[int, Int64]
"""By rank the rows of its collectives in one group, int64 [n]."""


def ranks_that_share_no_collective(ranks: Sequence[RankSummary]) -> dict[int, str]:
    """Return the reason for each rank that shares no collective of any group, though most others of a group have some.

    Only collectives count that nobody completes alone, and whose group is known by its members. None if half of the
    ranks share no collective: then they were recorded at different times, or without what tells which they are.
    """
    on_gpu = {s.rank: s for s in ranks if s.device == "gpu" and "rpc" not in s.strategies}
    groups = _collectives_by_group(on_gpu)
    sharing = set[int]().union(*(_sharing(on_gpu, of_rank) for of_rank in groups.values()))
    others = on_gpu.keys() - sharing
    apart = [rank for rank in others if any(_takes_part(rank, g, on_gpu, rows) for g, rows in groups.items())]
    if 2 * len(apart) >= len(on_gpu):
        return {}
    return dict.fromkeys(apart, _REASON)


def _collectives_by_group(ranks: Mapping[int, RankSummary]) -> dict[GroupKey, _Rows]:
    """Return by group and rank the rows of the collectives in steps that nobody completes alone."""
    groups: dict[GroupKey, _Rows] = {}
    for rank, summary in ranks.items():
        collectives = summary.collectives
        known = SYNCHRONISING_WITH_ANY_SHARES[collectives.kind] & (collectives.step != ABSENT)
        for local, key in enumerate(summary.groups):
            rows = np.flatnonzero(known & (collectives.group == local))
            if len(rows) and rank in key.ranks and len(key.ranks) > 1:
                groups.setdefault(key, {})[rank] = rows
    return groups


def _sharing(ranks: Mapping[int, RankSummary], of_rank: _Rows) -> set[int]:
    """Return the ranks of a group that have a collective which another rank has, too. Without ids, any may be one."""
    ids = {rank: ranks[rank].collectives.sequence[rows] for rank, rows in of_rank.items()}
    if len(ids) < 2 or any((of_one == ABSENT).all() for of_one in ids.values()):
        return set(ids) if len(ids) > 1 else set()
    longest = max(ids, key=lambda rank: len(ids[rank]))
    in_longest = np.unique(ids[longest])
    sampled = {rank: of_one[:: max(1, len(of_one) // _SAMPLED)] for rank, of_one in ids.items() if rank != longest}
    if all(_is_in(of_one, in_longest).any() for of_one in sampled.values()):
        return set(ids)
    every, count = np.unique(np.concatenate([np.unique(of_one) for of_one in ids.values()]), return_counts=True)
    common = every[(count > 1) & (every != ABSENT)]
    return {rank for rank, of_one in ids.items() if _is_in(of_one, common).any()}


def _is_in(values: Int64, ascending: Int64) -> Bool:
    """Return a mask [n] of the values, int64 [n], that are among others, int64 [m]."""
    if not len(ascending):
        return np.zeros(len(values), dtype=np.bool_)
    place = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.asarray((ascending[place] == values) & (values != ABSENT))


def _takes_part(rank: int, group: GroupKey, ranks: Mapping[int, RankSummary], of_rank: _Rows) -> bool:
    """Return whether most other recorded ranks of a group have collectives of it in several complete steps of a rank.

    Of one step it is not certain: the rank may have taken part right before its recording.
    """
    if rank not in group.ranks:
        return False
    steps = [step.step for step in ranks[rank].steps if step.complete]
    others = [other for other in group.ranks if other in ranks and other != rank]
    there = (
        other in of_rank and len(np.intersect1d(ranks[other].collectives.step[of_rank[other]], steps)) >= _SEVERAL
        for other in others
    )
    return 2 * sum(there) > len(others)
