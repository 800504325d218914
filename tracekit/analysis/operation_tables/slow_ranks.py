"""Which ranks compute longer than their peers in most steps: persistent stragglers, other than stalls that wander.

Peers are the ranks of the same stages in other replicas. A rank without peers has other layers than the others: its
stage may be uneven, which the analysis of pipelines tells. How sure a verdict is says `stragglers.certainty`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.finding import Certainty
from tracekit.analysis.operation_tables.graph.named_graph import NamedGraph
from tracekit.analysis.stats.leave_one_out import leave_one_out_medians
from tracekit.analysis.stragglers.certainty import Evidence, Grading
from tracekit.model.events import Bool, Int64

__all__ = ["SlowRank", "find_slow_ranks"]


@dataclass(frozen=True, kw_only=True)
class SlowRank:
    """A rank that computes longer than its peers in most steps.

    Attributes:
        beyond_ns: by how much in a step, the median.
        share: that as a share of what its peers compute.
        shown: in how many steps it shows.
        peers: how many peers it has.
    """

    rank: int
    beyond_ns: int
    share: float
    shown: int
    steps: int
    peers: int
    certainty: Certainty


def find_slow_ranks(named: NamedGraph) -> tuple[SlowRank, ...]:
    """Return the ranks that surely, or likely, compute longer than their peers, the slowest first."""
    ranks, work_ns, stages = _work(named)
    step_ns = float(np.mean(np.concatenate([group.measured_ns for group in named.graph.step_groups])))
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for place, of_rank in enumerate(stages):
        alike[of_rank].append(place)
    compared = [places for places in alike.values() if len(places) > 1]
    grading = Grading(step_ns=step_ns, candidates=sum(map(len, compared)), ranks=len(ranks), steps=work_ns.shape[1])
    found = []
    for places in compared:
        work = work_ns[places].T
        others_ns = leave_one_out_medians(work, np.ones_like(work, dtype=np.bool_))
        beyond_ns = work - others_ns
        slowest = int(np.median(beyond_ns, axis=0).argmax())
        rest = np.arange(len(places)) != slowest
        series_ns = beyond_ns[:, slowest]
        evidence = Evidence(series_ns=series_ns, peers_ns=_noise_ns(work, rest), slow_ns=series_ns[:, None])
        certainty = grading.grade(evidence)
        if certainty is not None:
            found.append(
                SlowRank(
                    rank=ranks[places[slowest]],
                    beyond_ns=round(evidence.size_ns),
                    share=evidence.size_ns / max(float(np.median(others_ns[:, slowest])), 1.0),
                    shown=round(evidence.persistence * len(series_ns)),
                    steps=len(series_ns),
                    peers=len(places) - 1,
                    certainty=certainty,
                )
            )
    return tuple(sorted(found, key=lambda slow: -slow.beyond_ns))


def _noise_ns(work_ns: Int64, rest: Bool) -> Int64:
    """Return by how much each of the other ranks exceeds those of them that it is compared with, int64 [k, p]; no rank
    if there is one alone. work_ns: int64 [k, ranks].
    """
    others_ns = work_ns[:, rest]
    if others_ns.shape[1] < 2:
        return others_ns[:, :0]
    return others_ns - leave_one_out_medians(others_ns, np.ones_like(others_ns, dtype=np.bool_))


def _work(named: NamedGraph) -> tuple[list[int], Int64, list[tuple[int, ...]]]:
    """Return the ranks, how long each computes in each step, int64 [ranks, k], and the stages of each."""
    groups = named.graph.step_groups
    ranks = sorted({rank for group in groups for rank in np.unique(group.rank).tolist()})
    place = {rank: number for number, rank in enumerate(ranks)}
    stages: list[set[int]] = [set() for _ in ranks]
    columns = []
    for group in groups:
        computes = np.isin(group.type, sorted(named.compute_types))
        work_ns = np.zeros((len(ranks), len(group.steps)))
        of_rank = np.array([place[rank] for rank in group.rank.tolist()])
        np.add.at(work_ns, of_rank[computes], group.duration_ns[computes])
        columns.append(work_ns)
        for number, stage in zip(of_rank[computes].tolist(), group.stage[computes].tolist(), strict=True):
            stages[number].add(stage)
    return ranks, np.rint(np.concatenate(columns, axis=1)).astype(np.int64), [tuple(sorted(s)) for s in stages]
