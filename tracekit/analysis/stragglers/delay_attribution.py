"""Lateness followed back to where it arose.

Comes in: instances with their last arrivals, lateness and what released the late ranks before. Goes out: `Charges`,
what each rank and each link caused in each step, and by which cause.

Lateness m at an instance is, in this order, its last rank's own excess since its release; the excess of the transfer
that released it over that on other links; and what is left is lateness of that instance's last rank, and so on back in
time. The instances form a forest, each with at most one before it, and the largest lateness that reaches an instance
counts, not their sum: 10 ms lost once may be seen late in a hundred collectives, and are 10 ms lost.

    m(i) = max(late(i), max over the instances j that i released of max(m(j), behind(j)) - excess(j) - slow transfer(i))

A rank is itself to blame for what it is later than the last but one. Passed on is what it is later than most, for those
that were released together are late together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.stragglers.arrivals import CollectiveInstances
from tracekit.model.events import ABSENT, Int64

__all__ = ["CAUSES", "Charges", "charge"]

CAUSES = ("compute", "more_work", "host", "data")
_MORE_OPERATIONS = 0.05  # than usual; fewer may be bookkeeping, such as a rank that prints


@dataclass(frozen=True, kw_only=True, eq=False)
class Charges:
    """What r ranks, and l links, caused in s steps. ranks_ns: int64 [r, s]. causes_ns: int64 [r, 5], over the steps, by
    `CAUSES` and, last, of no known cause. links_ns: int64 [l, s].
    """

    ranks_ns: Int64
    causes_ns: Int64
    links_ns: Int64


def charge(
    instances: CollectiveInstances, slow_ns: Int64, link: Int64, *, ranks: int, links: int, steps: Sequence[int]
) -> Charges:
    """slow_ns: int64 [n], by how much each transfer took longer than on other links; link: int64 [n], whose it was, or
    -1. Only what happened in `steps` (ascending) is charged.
    """
    own_ns, transfer_ns = _followed_back(instances, slow_ns)
    step = np.searchsorted(steps, instances.step)
    counted = np.isin(instances.step, np.array(steps, dtype=np.int64))
    charged = np.flatnonzero((own_ns > 0) & (instances.rank != ABSENT))
    charged = _once_a_segment(instances, own_ns, charged)
    charged = charged[counted[charged]]
    ranks_ns = np.zeros((ranks, len(steps)), dtype=np.int64)
    np.add.at(ranks_ns, (instances.rank[charged], step[charged]), own_ns[charged])
    causes_ns = np.zeros((ranks, len(CAUSES) + 2), dtype=np.int64)
    np.add.at(causes_ns, instances.rank[charged], _by_cause(instances, charged, own_ns[charged]))
    slow = np.flatnonzero((transfer_ns > 0) & (link != ABSENT) & counted)
    links_ns = np.zeros((links, len(steps)), dtype=np.int64)
    np.add.at(links_ns, (link[slow], step[slow]), transfer_ns[slow])
    return Charges(ranks_ns=ranks_ns, causes_ns=_resolved(causes_ns), links_ns=links_ns)


def _followed_back(instances: CollectiveInstances, slow_ns: Int64) -> tuple[Int64, Int64]:
    """int64 [n] each: of the lateness that reaches an instance, what its last rank adds, and what its transfer adds."""
    before = instances.before
    excess_ns = np.maximum(instances.excess_ns, 0)
    late_ns = instances.late_ns.copy()
    transfer_ns = np.zeros(len(before), dtype=np.int64)
    if not late_ns.any() and not instances.behind_ns.any():
        # Only messages, whose lateness is not known: what released somebody late, at least, was slow itself.
        released = before[before != ABSENT]
        transfer_ns[released] = slow_ns[released]
        return np.minimum(late_ns, excess_ns), transfer_ns
    for level in _levels(before):
        rest_ns = np.maximum(late_ns[level], instances.behind_ns[level]) - excess_ns[level]
        level, rest_ns = level[rest_ns > 0], rest_ns[rest_ns > 0]
        onto = before[level]
        np.maximum.at(transfer_ns, onto, np.minimum(rest_ns, slow_ns[onto]))
        np.maximum.at(late_ns, onto, rest_ns - slow_ns[onto])
    return np.minimum(late_ns, excess_ns), transfer_ns


def _levels(before: Int64) -> list[Int64]:
    """CollectiveInstances by how many lie before them, the most first, those with none left out."""
    depth = (before != ABSENT).astype(np.int64)
    further = before.copy()
    going = np.flatnonzero(further != ABSENT)
    while len(going):  # as many times as the longest chain can be halved
        beyond = further[going]
        depth[going], further[going] = depth[going] + depth[beyond], further[beyond]
        going = going[further[going] != ABSENT]
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 1))
    return np.split(order, bounds)[:0:-1]


def _once_a_segment(instances: CollectiveInstances, own_ns: Int64, charged: Int64) -> Int64:
    """Of the instances of a step that a rank reached since the same release only the largest charge counts:
    collectives that do not block lie in one stretch of computing, and each shows all of the delay in it."""
    segment = (instances.step[charged], instances.since_ns[charged], instances.rank[charged])
    order = np.lexsort((-instances.arrival_ns[charged], own_ns[charged], *segment))
    largest = np.ones(len(charged), dtype=np.bool_)
    largest[:-1] = np.any([column[order][1:] != column[order][:-1] for column in segment], axis=0)
    return charged[order[largest]]


def _by_cause(instances: CollectiveInstances, which: Int64, own_ns: Int64) -> Int64:
    """int64 [k, 6]: charges int64 [k] as `CAUSES`, as compute of which it is not known whether it is more work, and as
    wholly unknown."""
    data_ns = np.maximum(instances.data_ns[which], 0)
    busy_ns = np.maximum(instances.compute_ns[which], 0)
    host_ns = np.maximum(instances.excess_ns[which] - instances.compute_ns[which] - instances.data_ns[which], 0)
    total_ns = np.maximum(data_ns + busy_ns + host_ns, 1)
    data_ns = (own_ns * (data_ns / total_ns)).astype(np.int64)
    busy_ns = (own_ns * (busy_ns / total_ns)).astype(np.int64)
    host_ns = own_ns - data_ns - busy_ns
    operations, usual = instances.operations[which], instances.usual_operations[which]
    other_work = instances.differs[which]
    more = (operations > _MORE_OPERATIONS * usual) | ((operations == 0) & other_work)
    unclear = ~more & (operations > 0)
    parts = [busy_ns * ~(more | unclear), busy_ns * more, host_ns, data_ns, busy_ns * unclear]
    detailed = instances.detailed[which]
    parts = [np.where(detailed, part, 0) for part in parts]
    return np.stack([*parts, np.where(detailed, 0, own_ns)], axis=1)


def _resolved(parts_ns: Int64) -> Int64:
    """int64 [r, 5] of int64 [r, 6]: what may be more work is, if what could be told apart mostly was."""
    compute_ns, more_ns, host_ns, data_ns, unclear_ns, unknown_ns = parts_ns.T
    more = more_ns > compute_ns
    compute_ns, more_ns = compute_ns + unclear_ns * ~more, more_ns + unclear_ns * more
    return np.stack((compute_ns, more_ns, host_ns, data_ns, unknown_ns), axis=1)
