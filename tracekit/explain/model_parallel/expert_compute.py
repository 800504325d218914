"""How long the experts of each rank compute: what it launches between a dispatch and the combine behind it.

Experts take longer the more tokens they get. What lies between a combine and the next dispatch, such as attention, does
not depend on how tokens are routed. So a rank that takes longer than its peers only between dispatch and combine has
more tokens, and one that takes longer everywhere is slow.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracekit.explain.model_parallel.tables import COUNT_DTYPES, EXPERT_EXCHANGES
from tracekit.model.communication import KINDS, MatchedGroup
from tracekit.model.events import Bool, Float64, Int64
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

_DISPATCH, _COMBINE, _ALL_TO_ALL = (KINDS.index(kind) for kind in ("dispatch", "combine", "all_to_all"))
_LEAST_ELSEWHERE = 0.05  # of what the experts take: less does not tell how fast a rank is


@dataclass(frozen=True, kw_only=True, eq=False)
class ExpertCompute:
    """What the experts of the k ranks of a group compute, in p pairs of a dispatch and a combine, in order of time.

    Attributes:
        group: index into the run's groups.
        has_sizes: whether the exchanges are all-to-alls, whose sizes tell what each rank's experts receive.
        ranks: ascending, int64 [k].
        step: int64 [p].
        exchanges: instances of the group that belong to pairs, int64 [e]: notifications are instances of their own.
        pair: the pair of each of them, int64 [e].
        takes_back: whether each takes tokens back, bool [e].
        experts_ns: how long the operations take that each rank begins or launches between dispatch and combine,
            float64 [k, p].
        uncovered_ns: how long the exchanges of each pair are not covered by compute on each rank, int64 [k, p].
        pace: how long each rank takes for the same between a combine and the next dispatch, by the median of the ranks,
            float64 [k]. Above 1 it is slow, whatever its experts get.
    """

    group: int
    has_sizes: bool
    ranks: Int64
    step: Int64
    exchanges: Int64
    pair: Int64
    takes_back: Bool
    experts_ns: Float64
    uncovered_ns: Int64
    pace: Float64

    def by_rank_and_step(self, of_pairs: Int64 | Float64) -> dict[int, dict[int, int]]:
        """Return the sum of each rank and step, in whole ns. of_pairs: a time of each rank and pair in ns, [k, p]."""
        steps, index = np.unique(self.step, return_inverse=True)
        total = np.zeros((len(self.ranks), len(steps)))
        np.add.at(total.T, index, of_pairs.T)
        rows = zip(self.ranks.tolist(), np.rint(total).astype(np.int64).tolist(), strict=True)
        return {rank: dict(zip(steps.tolist(), row, strict=True)) for rank, row in rows}

    @cached_property
    def load_ns(self) -> Float64:
        """How long the experts would take if all ranks were equally fast, float64 [k, p]: an estimate of their load."""
        return np.asarray(self.experts_ns / self.pace[:, None])


def expert_computes(run: Run) -> list[ExpertCompute]:
    """Return what is known of each group that exchanges tokens, in the steps that all ranks completed.

    A group is left out if its ranks compute hardly anything between a combine and the next dispatch: there a slow rank
    looks like one with more tokens.
    """
    summaries = {summary.rank: summary for summary in run.ranks}
    with_sizes = {row.group for summary in run.ranks for row in summary[EXPERT_EXCHANGES]}
    steps = np.array(sorted(run.common_steps()), dtype=np.int64)
    result = []
    for matched in run.collectives:
        has_sizes = run.groups[matched.group] in with_sizes
        exchanges = np.isin(matched.kind, (_ALL_TO_ALL,) if has_sizes else (_DISPATCH, _COMBINE))
        exchanges &= (matched.row >= 0).all(axis=0) & np.isin(matched.step, steps)
        if len(matched.ranks) > 1 and exchanges.sum() > 1:
            ranks = [summaries[rank] for rank in matched.ranks.tolist()]
            compute = _compute(_Exchanges(matched, ranks, np.flatnonzero(exchanges), has_sizes=has_sizes))
            result += [] if compute is None else [compute]
    return result


class _Exchanges:
    """The exchanges of one group that all of its k ranks recorded, in order: x of them.

    Attributes:
        instances: int64 [x], of the group.
        step: int64 [x].
        takes_back: bool [x].
        work_ns: int64 [k, x], of what each rank had begun or launched before.
        uncovered_ns: int64 [k, x].
    """

    def __init__(self, matched: MatchedGroup, ranks: list[RankSummary], instances: Int64, *, has_sizes: bool) -> None:
        self.matched, self.ranks, self.instances, self.has_sizes = matched, ranks, instances, has_sizes
        if has_sizes:
            self.instances, self.takes_back = self._there_and_back()
        else:
            self.takes_back = matched.kind[self.instances] == _COMBINE
        self.step = matched.step[self.instances]
        self.work_ns, self.uncovered_ns = (self._column(self.instances, name) for name in ("work_ns", "waited_ns"))

    def _there_and_back(self) -> tuple[Int64, Bool]:
        """Return the all-to-alls of tokens, and which of them take back what an earlier one of the step brought.

        Those two have the same size on each rank. The full array of an all-to-all is the larger of what is sent and
        received, which swap on the way back.
        """
        tokens = ~np.isin(self._column(self.instances, "dtype"), COUNT_DTYPES).any(axis=0)
        instances = self.instances[tokens]
        _, sizes = np.unique(self._column(instances, "size_bytes"), axis=1, return_inverse=True)
        waiting: Counter[tuple[int, int]] = Counter()
        takes_back = np.zeros(len(instances), dtype=np.bool_)
        keys = zip(self.matched.step[instances].tolist(), sizes.reshape(-1).tolist(), strict=True)
        for index, key in enumerate(keys):
            takes_back[index] = waiting[key] > 0
            waiting[key] += -1 if takes_back[index] else 1
        return instances, takes_back

    def _column(self, instances: Int64, name: str) -> Int64:
        """Return a column of `Collectives` for some instances, [k, n]."""
        rows = self.matched.row[:, instances]
        return np.stack([getattr(rank.collectives, name)[row] for rank, row in zip(self.ranks, rows, strict=True)])


def _compute(found: _Exchanges) -> ExpertCompute | None:
    back, step = found.takes_back, found.step
    took_ns = np.diff(found.work_ns, axis=1).astype(np.float64)
    same_step = step[1:] == step[:-1]
    for_experts, elsewhere = same_step & ~back[:-1] & back[1:], same_step & back[:-1] & ~back[1:]
    experts_ns = took_ns[:, for_experts]
    pace = _pace(took_ns[:, elsewhere], least_ns=_LEAST_ELSEWHERE * float(np.median(experts_ns, axis=0).sum()))
    if pace is None or not experts_ns.any():
        return None
    # The dispatches before a pair's border, and the combines behind it, are those of the pair.
    pair = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(for_experts))) - back
    step_of_pair = step[1:][for_experts]
    paired = (pair >= 0) & (pair < len(step_of_pair))
    paired[paired] = step_of_pair[pair[paired]] == step[paired]
    uncovered_ns = np.zeros((len(found.ranks), len(step_of_pair)), dtype=np.int64)
    np.add.at(uncovered_ns.T, pair[paired], found.uncovered_ns[:, paired].T)
    return ExpertCompute(
        group=found.matched.group,
        has_sizes=found.has_sizes,
        ranks=found.matched.ranks.astype(np.int64),
        step=step_of_pair,
        exchanges=found.instances[paired],
        pair=pair[paired],
        takes_back=back[paired],
        experts_ns=experts_ns,
        uncovered_ns=uncovered_ns,
        pace=pace,
    )


def _pace(took_ns: Float64, least_ns: float) -> Float64 | None:
    """Return how long each of k ranks takes by the median of them, float64 [k], from g times of each, float64 [k, g].

    It is the median over these times, each with its length as weight: a rank that does more in a single place is not
    slow. None if they amount to less than `least_ns`.
    """
    usual_ns = np.median(took_ns, axis=0)
    known = usual_ns > 0
    if usual_ns.sum() <= least_ns:
        return None
    ratios = took_ns[:, known] / usual_ns[known]
    order = np.argsort(ratios, axis=1)
    weight = np.cumsum(usual_ns[known][order], axis=1)
    middle = np.argmax(weight >= weight[:, -1:] / 2, axis=1)
    pace = np.take_along_axis(ratios, np.take_along_axis(order, middle[:, None], axis=1), axis=1)[:, 0]
    return pace if (pace > 0).all() else None
