"""Attributes the delays of a run to the ranks and links that caused them, by following lateness back in time.

An instance is one collective, or one message; `collective_instances.py` defines its columns. Its last rank was
released by an earlier instance: the one that it last waited for. The lateness of an instance is divided in this order:

1. how much longer than its peers its last rank took since its release, `excess`;
2. how much longer the transfer that released that rank took than the same transfer on other links, `slow`;
3. the rest is lateness of the instance that released the rank. It is divided likewise, and so on back in time.

Each instance is released by at most one other, so the instances form a forest. If lateness of several instances leads
back to one, the largest counts and not the sum: 10 ms that are lost once may show in a hundred collectives, but remain
10 ms. With m(i) for the lateness that reaches instance i:

    rest(j) = max(m(j), behind(j)) - excess(j)
    m(i) = max(late(i), max over the instances j that i released of rest(j) - slow(i))
    caused by the last rank of i: min(m(i), excess(i))

`late` is how long after the second-last rank the last one arrived. `behind` is how long after the median of the others:
it is what is passed back, because ranks that were released together are late together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.stragglers.collective_instances import CollectiveInstances
from tracekit.model.events import ABSENT, Int64

__all__ = ["CAUSES", "CausedDelays", "attribute_delays"]

CAUSES = ("compute", "more_work", "host", "data")
_MORE_OPERATIONS = 0.05  # beyond the usual number; fewer may be bookkeeping, such as a rank that prints


@dataclass(frozen=True, kw_only=True, eq=False)
class CausedDelays:
    """The delay that r ranks and l links caused in s steps.

    Attributes:
        ranks_ns: int64 [r, s].
        causes_ns: int64 [r, 5], over all steps; the columns are the four `CAUSES`, then unknown.
        links_ns: int64 [l, s].
    """

    ranks_ns: Int64
    causes_ns: Int64
    links_ns: Int64


def attribute_delays(
    instances: CollectiveInstances, slow_ns: Int64, link: Int64, *, ranks: int, links: int, steps: Sequence[int]
) -> CausedDelays:
    """Return what each rank and link caused in `steps`, which ascend.

    slow_ns: int64 [n], by how much each transfer took longer than on other links. link: int64 [n], the link that it
    went over, or -1.
    """
    caused_ns, transfer_ns = _follow_back(instances, slow_ns)
    step = np.searchsorted(steps, instances.step)
    counted = np.isin(instances.step, np.array(steps, dtype=np.int64))
    charged = np.flatnonzero((caused_ns > 0) & (instances.rank != ABSENT))
    charged = _largest_of_each_segment(instances, caused_ns, charged)
    charged = charged[counted[charged]]
    ranks_ns = np.zeros((ranks, len(steps)), dtype=np.int64)
    np.add.at(ranks_ns, (instances.rank[charged], step[charged]), caused_ns[charged])
    causes_ns = np.zeros((ranks, len(CAUSES) + 2), dtype=np.int64)
    np.add.at(causes_ns, instances.rank[charged], _split_by_cause(instances, charged, caused_ns[charged]))
    slow = np.flatnonzero((transfer_ns > 0) & (link != ABSENT) & counted)
    links_ns = np.zeros((links, len(steps)), dtype=np.int64)
    np.add.at(links_ns, (link[slow], step[slow]), transfer_ns[slow])
    return CausedDelays(ranks_ns=ranks_ns, causes_ns=_resolve_unclear(causes_ns), links_ns=links_ns)


def _follow_back(instances: CollectiveInstances, slow_ns: Int64) -> tuple[Int64, Int64]:
    """Return the part of each instance's lateness that its last rank adds, and the part of its transfer: int64 [n]."""
    before = instances.released_by
    excess_ns = np.maximum(instances.excess_ns, 0)
    late_ns = instances.late_ns.copy()
    transfer_ns = np.zeros(len(before), dtype=np.int64)
    if not late_ns.any() and not instances.behind_ns.any():
        # There are only messages, whose lateness is not known. Count the slow transfers that released a rank.
        released = before[before != ABSENT]
        transfer_ns[released] = slow_ns[released]
        return np.minimum(late_ns, excess_ns), transfer_ns
    for level in _levels(before):
        rest_ns = np.maximum(late_ns[level], instances.behind_ns[level]) - excess_ns[level]
        level, rest_ns = level[rest_ns > 0], rest_ns[rest_ns > 0]
        releasing = before[level]
        np.maximum.at(transfer_ns, releasing, np.minimum(rest_ns, slow_ns[releasing]))
        np.maximum.at(late_ns, releasing, rest_ns - slow_ns[releasing])
    return np.minimum(late_ns, excess_ns), transfer_ns


def _levels(before: Int64) -> list[Int64]:
    """Return the instances by how many releases lead to them, the most first. Those that none released are left out."""
    depth = (before != ABSENT).astype(np.int64)
    further = before.copy()
    going = np.flatnonzero(further != ABSENT)
    while len(going):  # each round doubles how far back an instance has looked
        beyond = further[going]
        depth[going], further[going] = depth[going] + depth[beyond], further[beyond]
        going = going[further[going] != ABSENT]
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 1))
    return np.split(order, bounds)[:0:-1]


def _largest_of_each_segment(instances: CollectiveInstances, caused_ns: Int64, charged: Int64) -> Int64:
    """Return, of the instances that share a rank, its release and a step, the one with the largest delay.

    Collectives that do not block lie in one stretch of computing, and each shows all of the delay in it.
    """
    segment = (instances.step[charged], instances.released_ns[charged], instances.rank[charged])
    order = np.lexsort((-instances.arrival_ns[charged], caused_ns[charged], *segment))
    largest = np.ones(len(charged), dtype=np.bool_)
    largest[:-1] = np.any([column[order][1:] != column[order][:-1] for column in segment], axis=0)
    return charged[order[largest]]


def _split_by_cause(instances: CollectiveInstances, which: Int64, caused_ns: Int64) -> Int64:
    """Return the delays, int64 [k], by cause, int64 [k, 6].

    The columns are `CAUSES`, then compute that may be slow or more work, then unknown.
    """
    data_ns = np.maximum(instances.data_ns[which], 0)
    busy_ns = np.maximum(instances.compute_ns[which], 0)
    host_ns = np.maximum(instances.excess_ns[which] - instances.compute_ns[which] - instances.data_ns[which], 0)
    total_ns = np.maximum(data_ns + busy_ns + host_ns, 1)
    data_ns = (caused_ns * (data_ns / total_ns)).astype(np.int64)
    busy_ns = (caused_ns * (busy_ns / total_ns)).astype(np.int64)
    host_ns = caused_ns - data_ns - busy_ns
    operations, usual = instances.operations[which], instances.usual_operations[which]
    other_work = instances.differs[which]
    more = (operations > _MORE_OPERATIONS * usual) | ((operations == 0) & other_work)
    unclear = ~more & (operations > 0)
    parts = [busy_ns * ~(more | unclear), busy_ns * more, host_ns, data_ns, busy_ns * unclear]
    detailed = instances.detailed[which]
    parts = [np.where(detailed, part, 0) for part in parts]
    return np.stack([*parts, np.where(detailed, 0, caused_ns)], axis=1)


def _resolve_unclear(parts_ns: Int64) -> Int64:
    """Return int64 [r, 5] of int64 [r, 6]: unclear compute joins more work or compute, whichever is larger."""
    compute_ns, more_ns, host_ns, data_ns, unclear_ns, unknown_ns = parts_ns.T
    more = more_ns > compute_ns
    compute_ns, more_ns = compute_ns + unclear_ns * ~more, more_ns + unclear_ns * more
    return np.stack((compute_ns, more_ns, host_ns, data_ns, unknown_ns), axis=1)
