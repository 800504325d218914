"""Attributes the delays of a run to the ranks and links that caused them, by following lateness back in time.

An instance is one collective, or one message; `collective_instances.py` defines its columns. Its last rank's segment
begins with an earlier instance: the one that released that rank, or that it passed without waiting. The lateness of an
instance, of which no more counts than the others waited (`exposed`), is divided in this order:

1. how much longer than its peers its last rank took since its segment began, `excess`;
2. how much longer the transfer of the instance that the segment begins with took than the same on other links, `slow`;
3. the rest is lateness of that instance. It is divided likewise, and so on back in time.

Each segment begins with at most one instance, so the instances form a forest. If lateness of several instances leads
back to one, the largest counts and not the sum: 10 ms that are lost once may show in a hundred collectives, but remain
10 ms. With m(i) for the lateness that reaches instance i:

    late'(i), behind'(i) = min(late(i), exposed(i)), min(behind(i), exposed(i))
    rest(j) = max(m(j), behind'(j)) - excess(j)
    m(i) = max(late'(i), max over the instances j whose segment begins with i of rest(j) - slow(i))
    caused by the last rank of i: min(m(i), excess(i))

`late` is how long after the second-last rank the last one arrived. `behind` is how long after the median of the others:
it is what is passed back, because ranks that were released together are late together.

The same delay may still show several times. So of the instances in one segment the largest counts; no delay reaches
back beyond the begin of the instance charged before; and a rank is charged no more in a step than its groups waited
for it (`limited_by_waits`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracekit.explain.stragglers.collective_instances import CollectiveInstances
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.run import Run
from tracekit.stats.connected_components import deepest_first
from tracekit.stats.uncertainty import leave_one_out_medians

CAUSES = ("compute", "more_work", "host", "data")
MORE_OPERATIONS = 0.05  # beyond the usual number; fewer may be bookkeeping, such as a rank that prints


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
    caused_ns = _not_twice(instances, caused_ns, charged)
    ranks_ns = np.zeros((ranks, len(steps)), dtype=np.int64)
    np.add.at(ranks_ns, (instances.rank[charged], step[charged]), caused_ns[charged])
    causes_ns = np.zeros((ranks, len(CAUSES) + 2), dtype=np.int64)
    np.add.at(causes_ns, instances.rank[charged], _split_by_cause(instances, charged, caused_ns[charged]))
    slow = np.flatnonzero((transfer_ns > 0) & (link != ABSENT) & counted)
    links_ns = np.zeros((links, len(steps)), dtype=np.int64)
    np.add.at(links_ns, (link[slow], step[slow]), transfer_ns[slow])
    return CausedDelays(ranks_ns=ranks_ns, causes_ns=_resolve_unclear(causes_ns), links_ns=links_ns)


def limited_by_waits(charges: CausedDelays, run: Run, steps: Sequence[int]) -> CausedDelays:
    """Return the delays, none longer than the others of its rank's groups can have waited for that rank in the step.

    Instances whose waits overlap, such as prefetched ones, may each show the same delay. But all ranks of a group wait
    for its transfers alike. Beyond these the others wait for this rank, and it waits for them:

        waits(others) >= transfers + caused(rank)
        waits(rank) <= transfers + caused(others)
        caused(rank) <= waits(others) - waits(rank) + caused(others)

    steps: those of the columns of `charges.ranks_ns`.
    """
    waits_ns, known = _waits(run, steps)
    limit_ns = np.full(charges.ranks_ns.shape, -1, dtype=np.int64)
    for matched in run.collectives:
        members = np.array([run.index_of_rank[rank] for rank in matched.ranks.tolist()], dtype=np.int64)
        others_ns = leave_one_out_medians(waits_ns[members].T, known[members].T).T
        beyond_ns = np.maximum(others_ns - waits_ns[members], 0)
        comparable = known[members] & (known[members].sum(axis=0) > 1)
        limit_ns[members] = np.where(comparable, np.maximum(limit_ns[members], beyond_ns), limit_ns[members])
    by_others_ns = charges.ranks_ns.sum(axis=0) - charges.ranks_ns
    is_limited = limit_ns >= 0
    ranks_ns = np.where(is_limited, np.minimum(charges.ranks_ns, limit_ns + by_others_ns), charges.ranks_ns)
    share = ranks_ns.sum(axis=1) / np.maximum(charges.ranks_ns.sum(axis=1), 1)
    causes_ns = (charges.causes_ns * share[:, None]).astype(np.int64)
    return replace(charges, ranks_ns=ranks_ns, causes_ns=causes_ns)


def _waits(run: Run, steps: Sequence[int]) -> tuple[Int64, Bool]:
    """Return for how long each of r ranks waited in communication in s steps, int64 [r, s]; and a mask of the known."""
    waits_ns = np.zeros((len(run.ranks), len(steps)), dtype=np.int64)
    known = np.zeros(waits_ns.shape, dtype=np.bool_)
    column = {step: i for i, step in enumerate(steps)}
    for i, summary in enumerate(run.ranks):
        for parts in summary.steps:
            if parts.complete and parts.step in column:
                waits_ns[i, column[parts.step]] = parts.exposed_comm_ns
                known[i, column[parts.step]] = True
    return waits_ns, known


def _follow_back(instances: CollectiveInstances, slow_ns: Int64) -> tuple[Int64, Int64]:
    """Return the part of each instance's lateness that its last rank adds, and the part of its transfer: int64 [n]."""
    before = instances.begins_with
    excess_ns = np.maximum(instances.excess_ns, 0)
    late_ns = np.minimum(instances.late_ns, instances.waited_ns)
    behind_ns = np.minimum(instances.behind_ns, instances.waited_ns)
    transfer_ns = np.zeros(len(before), dtype=np.int64)
    if not late_ns.any() and not behind_ns.any():
        # There are only messages, whose lateness is not known. Count the slow transfers that released a rank.
        released = before[before != ABSENT]
        transfer_ns[released] = slow_ns[released]
        return np.minimum(late_ns, excess_ns), transfer_ns
    for level in deepest_first(before):
        rest_ns = np.maximum(late_ns[level], behind_ns[level]) - excess_ns[level]
        level, rest_ns = level[rest_ns > 0], rest_ns[rest_ns > 0]
        releasing = before[level]
        np.maximum.at(transfer_ns, releasing, np.minimum(rest_ns, slow_ns[releasing]))
        np.maximum.at(late_ns, releasing, rest_ns - slow_ns[releasing])
    return np.minimum(late_ns, excess_ns), transfer_ns


def _largest_of_each_segment(instances: CollectiveInstances, caused_ns: Int64, charged: Int64) -> Int64:
    """Return, of the instances that share a rank, the beginning of its segment and a step, the one with the largest
    delay.

    Collectives that do not block lie in one interval of computing, and each shows all of the delay in it.
    """
    segment = (instances.step[charged], instances.since_ns[charged], instances.rank[charged])
    order = np.lexsort((-instances.begin_ns[charged], caused_ns[charged], *segment))
    largest = np.ones(len(charged), dtype=np.bool_)
    largest[:-1] = np.any([column[order][1:] != column[order][:-1] for column in segment], axis=0)
    return charged[order[largest]]


def _not_twice(instances: CollectiveInstances, caused_ns: Int64, charged: Int64) -> Int64:
    """Return the delays, int64 [n], of which none reaches back beyond the beginning of the instance charged before.

    An instance that began within the lateness of another, on the same rank, shows the same delay once more.
    """
    order = charged[np.lexsort((instances.begin_ns[charged], instances.rank[charged]))]
    same_rank = instances.rank[order[1:]] == instances.rank[order[:-1]]
    result = caused_ns.copy()
    later = order[1:][same_rank]
    result[later] = np.minimum(result[later], np.diff(instances.begin_ns[order])[same_rank])
    return result


def _split_by_cause(instances: CollectiveInstances, which: Int64, caused_ns: Int64) -> Int64:
    """Return the delays, int64 [k], by cause, int64 [k, 6].

    The columns are `CAUSES`, then compute that may be slow or more work, then unknown.
    """
    data_ns = np.clip(instances.data_ns[which], 0, caused_ns)
    busy_ns = np.clip(instances.compute_ns[which], 0, caused_ns - data_ns)
    host_ns = caused_ns - data_ns - busy_ns
    operations, usual = instances.operations[which], instances.usual_operations[which]
    other_work = instances.differs[which]
    more = (operations > MORE_OPERATIONS * usual) | ((operations == 0) & other_work)
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
