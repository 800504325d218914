"""Which transfers took longer than the same transfers on other links.

A transfer lasts from the last arrival to the last end. A link is a process group, or the two ends of a message. It is
compared with the other links that carry the same kind and size among as many ranks on as many hosts. A link is slow if
both of these hold:

* its median transfer is longer by a fifth than the median of the other links;
* three quarters of its transfers are longer than three quarters of theirs, because many links are slow now and then.

What its transfers take beyond the median of the others is its slowness.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.stats.leave_one_out import leave_one_out_medians
from tracekit.analysis.stragglers.collective_instances import CollectiveInstances
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import Run

__all__ = ["Link", "SlowTransfers", "slow_transfers"]

_SLOW = 1.2  # times the usual: links differ by less than that without anything being wrong
_ENOUGH = 4  # transfers, for which quartiles mean something


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link that is slow.

    Attributes:
        ranks: those of the group, or the source and the destination of messages.
        directed: whether it carries messages, from the first of the ranks to the second.
        slowdown: how many times as long as on other links its transfers take.
    """

    ranks: tuple[int, ...]
    directed: bool
    slowdown: float


@dataclass(frozen=True, kw_only=True, eq=False)
class SlowTransfers:
    """The slow links of a run, and what they cost each of n instances.

    Attributes:
        links: the slow links.
        slow_ns: int64 [n], by how much the transfer took longer than on other links; 0 if its link is not slow.
        link: int64 [n], index into `links`, or -1.
    """

    links: tuple[Link, ...]
    slow_ns: Int64
    link: Int64


def slow_transfers(run: Run, instances: CollectiveInstances, collectives: int) -> SlowTransfers:
    """Return the slow links of a run. The first `collectives` instances are collectives, the others messages."""
    ends, link_of = _links(run, instances, collectives)
    host_of = {summary.rank: summary.machine for summary in run.ranks}
    hosts = np.array([len({host_of.get(rank) for rank in ranks}) for ranks in ends], dtype=np.int64)
    transfer_ns = np.maximum(instances.end_ns - instances.arrival_ns, 0)
    slow_ns, link = np.zeros(len(instances), dtype=np.int64), np.full(len(instances), ABSENT, dtype=np.int64)
    comparable = np.flatnonzero(instances.members > 1)
    if not len(comparable):
        return SlowTransfers(links=(), slow_ns=slow_ns, link=link)
    of_comparable = link_of[comparable]
    alike = (column[comparable] for column in (instances.kind, instances.size_bytes, instances.members))
    sort = _number_rows(*alike, hosts[of_comparable])
    pairs, pair, counts = np.unique(sort * len(ends) + of_comparable, return_inverse=True, return_counts=True)
    sorts = pairs // len(ends)
    low_ns, median_ns, high_ns = _quartiles(transfer_ns[comparable], pair, counts)
    usual_ns, usually_below_ns = _medians_of_other_links(median_ns, sorts), _medians_of_other_links(high_ns, sorts)
    slow = (usual_ns > 0) & (median_ns > _SLOW * usual_ns) & (low_ns > usually_below_ns) & (counts >= _ENOUGH)
    of_slow = slow[pair]
    here = comparable[of_slow]
    beyond_ns = np.maximum(transfer_ns[here] - usual_ns[pair[of_slow]], 0)
    slow_links = np.unique(of_comparable[of_slow])
    slow_ns[here], link[here] = beyond_ns, np.searchsorted(slow_links, of_comparable[of_slow])
    result = []
    for number, place in enumerate(slow_links.tolist()):
        took_ns = int(transfer_ns[here][link[here] == number].sum())
        usually_ns = int(usual_ns[pair[of_slow]][link[here] == number].sum())
        directed = place >= len(run.groups)
        result.append(Link(ranks=ends[place], directed=directed, slowdown=took_ns / max(usually_ns, 1)))
    return SlowTransfers(links=tuple(result), slow_ns=slow_ns, link=link)


def _links(run: Run, instances: CollectiveInstances, collectives: int) -> tuple[list[tuple[int, ...]], Int64]:
    """Return the ranks of all links, and the link of each instance, int64 [n]."""
    groups = [group.ranks for group in run.groups]
    ends = run.messages.source.astype(np.int64) << 32 | run.messages.destination
    edges, edge = np.unique(ends, return_inverse=True)
    link = np.concatenate((instances.group[:collectives], len(groups) + edge))
    return [*groups, *((int(pair) >> 32, int(pair) & 0xFFFFFFFF) for pair in edges)], link


def _number_rows(*columns: Int64) -> Int64:
    """Return a number for each row, int64 [n], equal for equal rows. columns: int64 [n] each."""
    result = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        result = np.unique(result * len(values) + place, return_inverse=True)[1]
    return result


def _medians_of_other_links(values: Int64, sorts: Int64) -> Int64:
    """Return the median of the values of the other links that carry the same, int64 [p].

    values: int64 [p], one for each link and what it carries. sorts: int64 [p], ascending, equal for the same cargo.
    """
    result = np.zeros(len(sorts), dtype=np.int64)
    for which in np.split(np.arange(len(sorts)), np.flatnonzero(np.diff(sorts)) + 1):
        of_sort = values[which][None]
        result[which] = leave_one_out_medians(of_sort, np.ones_like(of_sort, dtype=np.bool_))[0]
    return result


def _quartiles(values: Int64, group: Int64, counts: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the first quartile, the median and the third quartile of the values of each group, int64 [g] each.

    Groups are 0 <= i < g, and `counts`, int64 [g], says how many values each has. The median is rounded down.
    """
    ordered = values[np.lexsort((values, group))]
    first, last = np.cumsum(counts) - counts, counts - 1
    low, high = ordered[first + last // 2], ordered[first + counts // 2]
    return ordered[first + last // 4], low + (high - low) // 2, ordered[first + last - last // 4]
