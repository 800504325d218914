"""Which transfers took longer than the same transfers on other network links.

A network link is a process group, or the two ends of a message. It is compared with the other links that carry the same
kind and size among as many ranks on as many hosts. A link is slow if all of these hold:

* its median transfer is longer by a fifth than the median of the other links;
* three quarters of its transfers are longer than three quarters of theirs, because many links are slow now and then;
* even the fastest of its messages is longer by a fifth than the median of the other links. Otherwise the link is as
  quick as they are, and its messages wait for something else, such as a processor.

What its transfers take beyond the median of the others is its slowness. Messages of unknown size are not compared.
Those of GPUs are compared by their fastest ones (`communication.slow_messages`).

How long a message took is not known exactly if it came while its receiver was busy (`matching.message_times`). On a
link that may be slow it counts as 0, and on the links that this one is compared with as what it took at most. A link is
judged by those messages, half or more, for which the receivers waited soonest: these hide the least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.explain.communication.slow_messages import SLOW_LINK, Reference, SlowMessages, slow_messages
from tracekit.explain.stragglers.arrivals import Arrivals
from tracekit.explain.stragglers.collective_instances import CollectiveInstances
from tracekit.job.message_times import awaited_soonest, fastest_of_each
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.run import Run
from tracekit.stats.rows_by_key import number_rows
from tracekit.stats.uncertainty import leave_one_out_medians, quartiles

_ENOUGH = 4  # transfers, for which quartiles mean something
_Name = tuple[tuple[int, ...], bool, bool]  # ranks, `carries_messages` and `directed` of a link


@dataclass(frozen=True, kw_only=True)
class SlowNetworkLink:
    """A network link that is slow.

    Attributes:
        ranks: those of the group, or the source and the destination of messages.
        carries_messages: whether it carries messages, and not collectives of the group.
        directed: whether it carries messages from the first of the ranks to the second, and is not slow the other way.
        slowdown: how many times as long as on other links its transfers take.
        reference: what it is compared with.
    """

    ranks: tuple[int, ...]
    carries_messages: bool
    directed: bool
    slowdown: float
    reference: Reference = "others alike"

    @property
    def may_be_slower_by_nature(self) -> bool:
        """Return whether nothing need be wrong: networks are slower than links within hosts."""
        return self.reference == "links within hosts"


@dataclass(frozen=True, kw_only=True, eq=False)
class SlowTransfers:
    """The slow links of a run, and what they cost each of n instances.

    Attributes:
        links: the slow links.
        slow_ns: int64 [n], by how much the transfer took longer than on other links; 0 if its link is not slow.
        link: int64 [n], index into `links`, or -1.
    """

    links: tuple[SlowNetworkLink, ...]
    slow_ns: Int64
    link: Int64


def slow_transfers(run: Run, arrivals: Arrivals) -> SlowTransfers:
    """Return the slow links of a run."""
    instances, collectives = arrivals.instances, arrivals.collectives
    ends, link_of = _links(run, instances, collectives)
    host_of = {summary.rank: summary.machine for summary in run.ranks}
    hosts = np.array([len({host_of.get(rank) for rank in ranks}) for ranks in ends], dtype=np.int64)
    transfer_ns = instances.transfer_ns
    slow_ns, link = np.zeros(len(instances), dtype=np.int64), np.full(len(instances), ABSENT, dtype=np.int64)
    by_kernels = _are_kernels(run)
    messages = slow_messages(run, transfer_ns[collectives:], by_kernels)
    among_others = (instances.members > 1) & (transfer_ns != ABSENT)
    among_others[collectives:] &= ~by_kernels & (instances.size_bytes[collectives:] != ABSENT)
    comparable = np.flatnonzero(among_others)
    if not len(comparable):
        return _with_messages(SlowTransfers(links=(), slow_ns=slow_ns, link=link), messages, collectives)
    of_comparable = link_of[comparable]
    alike = (column[comparable] for column in (instances.kind, instances.size_bytes, instances.members))
    sort = number_rows(*alike, hosts[of_comparable])
    pairs, pair = np.unique(sort * len(ends) + of_comparable, return_inverse=True)
    sorts = pairs // len(ends)
    at_least_ns, unseen_ns = _least_and_unseen(arrivals)
    judged = awaited_soonest(unseen_ns[comparable], pair)
    rows, of_rows = comparable[judged], pair[judged]
    low_ns, median_ns, _ = quartiles(at_least_ns[rows], of_rows)
    _, at_most_ns, high_ns = quartiles(transfer_ns[rows], of_rows)
    usual_ns, usually_below_ns = _medians_of_other_links(at_most_ns, sorts), _medians_of_other_links(high_ns, sorts)
    slow = (usual_ns > 0) & (median_ns > SLOW_LINK * usual_ns) & (low_ns > usually_below_ns)
    slow &= np.bincount(of_rows) >= _ENOUGH
    is_exact = at_least_ns == transfer_ns
    exact_messages = is_exact[rows] & (rows >= collectives)
    exact, of_exact = np.unique(of_rows[exact_messages], return_inverse=True)
    slow[exact] &= fastest_of_each(transfer_ns[rows[exact_messages]], of_exact) > SLOW_LINK * usual_ns[exact]
    of_slow = slow[pair]
    here, usually_ns = comparable[of_slow], usual_ns[pair[of_slow]]
    beyond_ns = np.clip(at_least_ns[here] - usually_ns, 0, transfer_ns[here] - unseen_ns[here])
    slow_links = np.unique(of_comparable[of_slow])
    named, number = _name_links(slow_links, ends, len(run.groups))
    slow_ns[here], link[here] = beyond_ns, number[np.searchsorted(slow_links, of_comparable[of_slow])]
    is_known = judged[of_slow] & is_exact[here]
    result = []
    for i, (ranks, carries_messages, directed) in enumerate(named):
        known = is_known & (link[here] == i)
        slowdown = int(transfer_ns[here][known].sum()) / max(int(usually_ns[known].sum()), 1)
        result.append(
            SlowNetworkLink(ranks=ranks, carries_messages=carries_messages, directed=directed, slowdown=slowdown)
        )
    return _with_messages(SlowTransfers(links=tuple(result), slow_ns=slow_ns, link=link), messages, collectives)


def _least_and_unseen(arrivals: Arrivals) -> tuple[Int64, Int64]:
    """Return how long each transfer took at least, and how much passed before a receiver waited: int64 [n] each."""
    of_collectives_ns, messages = arrivals.instances.transfer_ns[: arrivals.collectives], arrivals.message_times
    at_least_ns = np.concatenate((of_collectives_ns, messages.at_least_ns))
    return at_least_ns, np.concatenate((np.zeros_like(of_collectives_ns), messages.unseen_ns))


def _are_kernels(run: Run) -> Bool:
    """Return a mask [m] of the messages whose two ends are kernels of GPUs."""
    devices = {summary.rank: summary.device == "gpu" for summary in run.ranks}
    ends = zip(run.messages.source.tolist(), run.messages.destination.tolist(), strict=True)
    return np.array([devices[source] and devices[destination] for source, destination in ends], dtype=np.bool_)


def _with_messages(slow: SlowTransfers, messages: SlowMessages, collectives: int) -> SlowTransfers:
    """Add the slow links of messages. The two directions between two ranks are one link if both are slow."""
    links, names = list(slow.links), np.full(len(messages.links) + 1, ABSENT)
    of_messages = zip(messages.links, messages.slowdown, messages.references, strict=True)
    index_of = {ends: i for i, ends in enumerate(messages.links)}
    for i, (ends, slowdown, reference) in enumerate(of_messages):
        back = index_of.get(ends[::-1])
        both = back is not None
        if back is not None and ends[0] > ends[1]:
            names[i] = names[back]
            continue
        if back is not None:
            slowdown = (slowdown + messages.slowdown[back]) / 2
        names[i] = len(links)
        links.append(
            SlowNetworkLink(
                ranks=ends, carries_messages=True, directed=not both, slowdown=slowdown, reference=reference
            )
        )
    slow_ns, link = slow.slow_ns.copy(), slow.link.copy()
    number = names[messages.link]
    slow_ns[collectives:] = np.where(number == ABSENT, slow_ns[collectives:], messages.slow_ns)
    link[collectives:] = np.where(number == ABSENT, link[collectives:], number)
    return SlowTransfers(links=tuple(links), slow_ns=slow_ns, link=link)


def _links(run: Run, instances: CollectiveInstances, collectives: int) -> tuple[list[tuple[int, ...]], Int64]:
    """Return the ranks of all links, and the link of each instance, int64 [n]."""
    groups = [group.ranks for group in run.groups]
    ends = run.messages.source.astype(np.int64) << 32 | run.messages.destination
    edges, edge = np.unique(ends, return_inverse=True)
    link = np.concatenate((instances.group[:collectives], len(groups) + edge))
    return [*groups, *((int(pair) >> 32, int(pair) & 0xFFFFFFFF) for pair in edges)], link


def _name_links(slow: Int64, ends: Sequence[tuple[int, ...]], groups: int) -> tuple[list[_Name], Int64]:
    """Return the names of the links, and which of these each of `slow` has, int64 [l].

    The two directions between two ranks are one link if both are slow. The first `groups` links are groups.
    """
    link_indexes = slow.tolist()
    messages = {ends[link_index] for link_index in link_indexes if link_index >= groups}
    named: dict[_Name, int] = {}
    number = []
    for link_index in link_indexes:
        both = link_index >= groups and ends[link_index][::-1] in messages
        carries_messages = link_index >= groups
        name = (
            tuple(sorted(ends[link_index])) if both else ends[link_index],
            carries_messages,
            carries_messages and not both,
        )
        number.append(named.setdefault(name, len(named)))
    return list(named), np.array(number, dtype=np.int64)


def _medians_of_other_links(values: Int64, sorts: Int64) -> Int64:
    """Return the median of the values of the other links that carry the same, int64 [p].

    values: int64 [p], one for each link and what it carries. sorts: int64 [p], ascending, equal for the same cargo.
    """
    result = np.zeros(len(sorts), dtype=np.int64)
    for which in np.split(np.arange(len(sorts)), np.flatnonzero(np.diff(sorts)) + 1):
        of_sort = values[which][None]
        result[which] = leave_one_out_medians(of_sort, np.ones_like(of_sort, dtype=np.bool_))[0]
    return result
