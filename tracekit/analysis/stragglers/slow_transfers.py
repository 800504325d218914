"""Which transfers took longer than the same elsewhere, and over which link.

Comes in: a run and its instances. Goes out: for each instance by how much its transfer, from the last arrival to the
last end, exceeds what is usual on other links, and the link. A link is a process group, or the two ends of a message.
It is compared with the other links that carry the same kind and size among as many ranks on as many hosts, and slow
when its median transfer is longer by a fifth than the median of theirs, and three quarters of its transfers are longer
than three quarters of theirs: many times are long now and then. All that is beyond their median is its slowness.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.stats.leave_one_out import leave_one_out_medians
from tracekit.analysis.stragglers.arrivals import CollectiveInstances
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import Run

__all__ = ["Link", "SlowTransfers", "slow_transfers"]

_SLOW = 1.2  # times the usual: links differ by less than that without anything being wrong
_ENOUGH = 4  # transfers to speak of quarters


@dataclass(frozen=True, kw_only=True)
class Link:
    """`ranks`: of the group; of messages the source and the destination. `slowdown`: 1 is what is usual elsewhere."""

    ranks: tuple[int, ...]
    directed: bool
    slowdown: float


@dataclass(frozen=True, kw_only=True, eq=False)
class SlowTransfers:
    """The slow `links`; slow_ns: int64 [n], of each instance, 0 if its link is not slow; link: int64 [n], or -1."""

    links: tuple[Link, ...]
    slow_ns: Int64
    link: Int64


def slow_transfers(run: Run, instances: CollectiveInstances, collectives: int) -> SlowTransfers:
    """The first `collectives` instances are no messages."""
    ends, link_of = _links(run, instances, collectives)
    host_of = {summary.rank: summary.machine for summary in run.ranks}
    hosts = np.array([len({host_of.get(rank) for rank in ranks}) for ranks in ends], dtype=np.int64)
    transfer_ns = np.maximum(instances.end_ns - instances.arrival_ns, 0)
    slow_ns, link = np.zeros(len(instances), dtype=np.int64), np.full(len(instances), ABSENT, dtype=np.int64)
    comparable = np.flatnonzero(instances.members > 1)
    if not len(comparable):
        return SlowTransfers(links=(), slow_ns=slow_ns, link=link)
    own = link_of[comparable]
    alike = (column[comparable] for column in (instances.kind, instances.size_bytes, instances.members))
    sort = _numbered(*alike, hosts[own])
    pairs, pair, counts = np.unique(sort * len(ends) + own, return_inverse=True, return_counts=True)
    sorts = pairs // len(ends)
    low_ns, median_ns, high_ns = _quarters(transfer_ns[comparable], pair, counts)
    usual_ns, usually_below_ns = _of_others(median_ns, sorts), _of_others(high_ns, sorts)
    slow = (usual_ns > 0) & (median_ns > _SLOW * usual_ns) & (low_ns > usually_below_ns) & (counts >= _ENOUGH)
    of_slow = slow[pair]
    here = comparable[of_slow]
    beyond_ns = np.maximum(transfer_ns[here] - usual_ns[pair[of_slow]], 0)
    slow_links = np.unique(own[of_slow])
    slow_ns[here], link[here] = beyond_ns, np.searchsorted(slow_links, own[of_slow])
    result = []
    for number, place in enumerate(slow_links.tolist()):
        took_ns = int(transfer_ns[here][link[here] == number].sum())
        usually_ns = int(usual_ns[pair[of_slow]][link[here] == number].sum())
        directed = place >= len(run.groups)
        result.append(Link(ranks=ends[place], directed=directed, slowdown=took_ns / max(usually_ns, 1)))
    return SlowTransfers(links=tuple(result), slow_ns=slow_ns, link=link)


def _links(run: Run, instances: CollectiveInstances, collectives: int) -> tuple[list[tuple[int, ...]], Int64]:
    """Ranks of all links, and each instance's link: int64 [n]."""
    groups = [group.ranks for group in run.groups]
    ends = run.messages.source.astype(np.int64) << 32 | run.messages.destination
    edges, edge = np.unique(ends, return_inverse=True)
    link = np.concatenate((instances.group[:collectives], len(groups) + edge))
    return [*groups, *((int(pair) >> 32, int(pair) & 0xFFFFFFFF) for pair in edges)], link


def _numbered(*columns: Int64) -> Int64:
    """int64 [n]: a number for each different row of the columns, int64 [n] each."""
    result = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        result = np.unique(result * len(values) + place, return_inverse=True)[1]
    return result


def _of_others(values: Int64, sorts: Int64) -> Int64:
    """int64 [p]: the median of the values of the other pairs of the same sort, which lie together."""
    result = np.zeros(len(sorts), dtype=np.int64)
    for which in np.split(np.arange(len(sorts)), np.flatnonzero(np.diff(sorts)) + 1):
        own = values[which][None]
        result[which] = leave_one_out_medians(own, np.ones_like(own, dtype=np.bool_))[0]
    return result


def _quarters(values: Int64, group: Int64, counts: Int64) -> tuple[Int64, Int64, Int64]:
    """int64 [g] each: the first quartile, the median (rounded down) and the third quartile of the values of each group
    0 <= i < g, of which there are `counts`."""
    ordered = values[np.lexsort((values, group))]
    first, last = np.cumsum(counts) - counts, counts - 1
    low, high = ordered[first + last // 2], ordered[first + counts // 2]
    return ordered[first + last // 4], low + (high - low) // 2, ordered[first + last - last // 4]
