"""Between which ranks of GPU jobs messages take longer than the same messages between others.

A network link is the two ranks of a message, in one direction. Its messages may wait for others (`message_times`), but
in most jobs not all do. The fastest one tells what the link can do. The link is slow if even that one takes longer than
the fastest ones of other links, of the same size and across as many hosts. Messages of unknown size are not compared.

Where no other link carries that size across as many hosts, there are two more references:

* Links elsewhere: those within hosts for the only link between hosts, although a network may be slower without anything
  being wrong.
* NVLink, for two GPUs that it joins: how long messages take over it is known without another link. It joins the GPUs of
  hosts whose boards have it. Messages that take longer than a single NVLink needs do not use it, as where peer access
  is off and they pass through the memory of the host.

A link most of whose messages share kernels with those of a slower one is left out: all of them may have waited.

How long a transfer takes is defined here for the table of collectives, for buckets and for slow links. A transfer
begins when the last rank's part of it begins. That is at the last arrival, or at the end of the operation before on a
stream or queue, whichever is later. It ends with the last end.

The part of the rank that begins last takes as long as the transfer, if no rank can leave early. Its duration is on one
clock, so it is exact even where clocks are not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from tracekit.job.message_times import fastest_of_each, message_kernels, message_sizes
from tracekit.model.communication import SYNCHRONISING
from tracekit.model.events import ABSENT, Bool, Float64, Int32, Int64
from tracekit.model.run import Run
from tracekit.stats.grouped import grouped
from tracekit.stats.uncertainty import leave_one_out_medians

_ENOUGH = 4  # messages, of which one may have waited for nothing
_Pair = frozenset[int]

SLOW_LINK = 1.2  # times the usual: links differ by less than that without anything being wrong

Reference = Literal["others alike", "links within hosts", "links between hosts", "NVLink"]
"""What the transfers of a link are compared with; the first of these that there is."""

# Names of GPUs as CUDA reports them. PCIe cards have no NVLink, and bridges (NVL) join only some of them. Not all GPUs
# of hosts with V100-SXM2 are joined with each other. Parts of a GPU (MIG) do not reach each other over it.
_JOINED = re.compile(r"^(?!.*\bMIG\b).*(\bA[18]00-SXM|\bH100\b.*\bHBM3|\bH20\b|\bH200\b(?! NVL)|\bG?B[23]00\b)")

_LATENCY_NS = 20_000  # NCCL's smallest messages take about as long between hosts, and less within one

# NCCL's send and receive between two A100s that four NVLinks join, measured with `sendrecv_perf`
# (github.com/NVIDIA/nccl-tests/issues/331). Other boards join two GPUs by more links.
_USUAL_BYTES_PER_NS = 72.0
# What NCCL counts on from one NVLink of an A100 (src/graph/topo.h, SM80_NVLINK_BW). Later ones carry more.
_LEAST_BYTES_PER_NS = 20.0

_LONGEST = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True, eq=False)
class SlowMessages:
    """The slow links of a run's m messages.

    Attributes:
        links: source and destination of each, in order.
        slowdown: how many times as long as on other links the messages of each take.
        references: what each is compared with.
        link: of each message, int64 [m], index into `links`, or -1.
        slow_ns: by how much each took longer than on other links, at least, int64 [m].
    """

    links: tuple[tuple[int, int], ...]
    slowdown: tuple[float, ...]
    references: tuple[Reference, ...]
    link: Int64
    slow_ns: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class _NetworkLink:
    """The messages of one size from one rank to another.

    Attributes:
        rows: of the run's messages.
        fastest_ns: the time of the fastest.
        usual: what is usual; None where nothing tells.
    """

    ends: tuple[int, int]
    rows: Int64
    fastest_ns: int
    usual: UsualTime | None = None

    @property
    def pair(self) -> _Pair:
        return frozenset(self.ends)


def slow_messages(run: Run, took_ns: Int64, comparable: Bool) -> SlowMessages:
    """Return the slow links. took_ns: how long messages took, int64 [m], or -1. comparable: of GPU ranks, bool [m]."""
    link, slow_ns = np.full(len(took_ns), ABSENT), np.zeros(len(took_ns), dtype=np.int64)
    size_bytes = message_sizes(run)
    known = comparable & (took_ns != ABSENT) & (size_bytes != ABSENT)
    every = _links(run, took_ns, size_bytes, np.flatnonzero(known))
    slow = [each for each in every if each.usual is not None and each.fastest_ns > each.usual.limit_ns]
    slow = _without_companions(run, slow, every)
    links = sorted({each.ends for each in slow})
    number = {ends: i for i, ends in enumerate(links)}
    took, usually = dict.fromkeys(links, 0), dict.fromkeys(links, 0)
    references: dict[tuple[int, int], Reference] = {}
    for each in slow:
        assert each.usual is not None
        usual_ns, reference = round(each.usual.usual_ns), each.usual.reference
        link[each.rows] = number[each.ends]
        slow_ns[each.rows] = each.fastest_ns - usual_ns
        took[each.ends] += each.fastest_ns * len(each.rows)
        usually[each.ends] += usual_ns * len(each.rows)
        references[each.ends] = min(references.get(each.ends, reference), reference, key=get_args(Reference).index)
    return SlowMessages(
        links=tuple(links),
        slowdown=tuple(took[ends] / usually[ends] for ends in links),
        references=tuple(references[ends] for ends in links),
        link=link,
        slow_ns=slow_ns,
    )


def _links(run: Run, took_ns: Int64, size_bytes: Int64, rows: Int64) -> list[_NetworkLink]:
    """Return the links, one for each size that they carry, with what is usual for it."""
    machine = {summary.rank: summary.machine for summary in run.ranks}
    messages = run.messages
    columns = (size_bytes, messages.source, messages.destination)
    cargo = zip(*(column[rows].tolist() for column in columns), strict=True)
    rows_of = grouped(zip(cargo, rows.tolist(), strict=True))
    by_size: dict[int, dict[int, list[_NetworkLink]]] = {}
    for (size, source, destination), of_link in rows_of.items():
        if len(of_link) >= _ENOUGH:
            at = np.array(of_link, dtype=np.int64)
            fastest_ns = int(fastest_of_each(took_ns[at], np.zeros_like(at))[0])
            hosts = len({machine[source], machine[destination]})
            link = _NetworkLink(ends=(source, destination), rows=at, fastest_ns=fastest_ns)
            by_size.setdefault(size, {}).setdefault(hosts, []).append(link)
    names = {summary.rank: summary.device_name for summary in run.ranks}
    hosts_known = None not in machine.values()
    result = []
    for size, by_hosts in by_size.items():
        for hosts, links in by_hosts.items():
            fastest_ns_of = _fastest_by_pair(links)
            if len(fastest_ns_of) > 1:
                result += _compared_alike(links, fastest_ns_of)
            elif hosts_known:
                elsewhere = [link for number, others in by_hosts.items() if number != hosts for link in others]
                times_ns = list(_fastest_by_pair(elsewhere).values())
                devices = [names[rank] for rank in links[0].ends]
                usual = usual_without_alike(times_ns, hosts=hosts, size_bytes=size, devices=devices)
                result += [replace(link, usual=usual) for link in links]
            else:
                result += links
    return result


def _fastest_by_pair(links: Sequence[_NetworkLink]) -> dict[_Pair, int]:
    """Return the time of the fastest message between two ranks, in the faster direction."""
    fastest: dict[_Pair, int] = {}
    for link in links:
        fastest[link.pair] = min(fastest.get(link.pair, link.fastest_ns), link.fastest_ns)
    return fastest


def _compared_alike(links: Sequence[_NetworkLink], fastest_ns: dict[_Pair, int]) -> list[_NetworkLink]:
    """Return the links compared with the median over other pairs of ranks."""
    of_pairs_ns = np.array([list(fastest_ns.values())], dtype=np.int64)
    usual_ns = leave_one_out_medians(of_pairs_ns, np.ones_like(of_pairs_ns, dtype=np.bool_))[0]
    usual_ns_of = dict(zip(fastest_ns, usual_ns.tolist(), strict=True))
    return [replace(link, usual=usual_of_alike(usual_ns_of[link.pair])) for link in links]


def _without_companions(run: Run, slow: Sequence[_NetworkLink], every: Sequence[_NetworkLink]) -> list[_NetworkLink]:
    """Return the slow links without those most of whose messages share kernels with messages of a slower link.

    A slower link is one between two other ranks.
    """
    if not slow:
        return []
    pairs: dict[_Pair, int] = {}
    pair, fastest_ns = np.full(len(run.messages), ABSENT), np.full(len(run.messages), ABSENT)
    for link in every:
        pair[link.rows], fastest_ns[link.rows] = pairs.setdefault(link.pair, len(pairs)), link.fastest_ns
    # Of each kernel: the slowest pair of ranks with messages in it, and how slow the slowest of the others is.
    numbers, kernel = np.unique(np.stack(message_kernels(run)), return_inverse=True)
    kernel = kernel.reshape(2, -1)
    slowest_ns, others_ns, slowest_pair = np.full((3, len(numbers)), ABSENT)
    for side in kernel:
        np.maximum.at(slowest_ns, side, fastest_ns)
    for side in kernel:
        is_slowest = fastest_ns == slowest_ns[side]
        slowest_pair[side[is_slowest]] = pair[is_slowest]
    for side in kernel:
        is_other = pair != slowest_pair[side]
        np.maximum.at(others_ns, side[is_other], fastest_ns[is_other])
    beside_ns = np.where(pair == slowest_pair[kernel], others_ns[kernel], slowest_ns[kernel]).max(axis=0)
    return [link for link in slow if 2 * (beside_ns[link.rows] > link.fastest_ns).sum() < len(link.rows)]


@dataclass(frozen=True, kw_only=True)
class UsualTime:
    """How long the transfers of a link usually take.

    Attributes:
        usual_ns: how long.
        limit_ns: above which the link is slow.
        reference: what says so.
    """

    usual_ns: float
    limit_ns: float
    reference: Reference


def usual_of_alike(usual_ns: float) -> UsualTime | None:
    """Return the usual time of a link, or None if that is 0.

    usual_ns: the median of other links that carry the same size across as many hosts.
    """
    return _beyond(usual_ns, "others alike")


def usual_without_alike(
    elsewhere_ns: Sequence[float] | Int64 | Float64, *, hosts: int, size_bytes: int, devices: Sequence[str | None]
) -> UsualTime | None:
    """Return what is usual for a link whose size no other link carries across as many hosts; None if nothing tells.

    elsewhere_ns: the times of links that carry it across another number of hosts. devices: the names of both ends'.
    """
    if len(elsewhere_ns):
        return _beyond(float(np.median(elsewhere_ns)), "links within hosts" if hosts > 1 else "links between hosts")
    if hosts == 1 and all(map(has_nvlink, devices)):
        usual_ns, limit_ns = usual_over_nvlink_ns(size_bytes), longest_over_nvlink_ns(size_bytes)
        return UsualTime(usual_ns=usual_ns, limit_ns=limit_ns, reference="NVLink")
    return None


def _beyond(usual_ns: float, reference: Reference) -> UsualTime | None:
    if not usual_ns:
        return None
    return UsualTime(usual_ns=usual_ns, limit_ns=SLOW_LINK * usual_ns, reference=reference)


def has_nvlink(device_name: str | None) -> bool:
    """Return whether NVLink joins GPUs of this name with all others of their host."""
    return _JOINED.search(device_name or "") is not None


def usual_over_nvlink_ns(size_bytes: int) -> float:
    """Return how long a message takes from when both ranks are there, if NVLink joins them."""
    return _LATENCY_NS + size_bytes / _USUAL_BYTES_PER_NS


def longest_over_nvlink_ns(size_bytes: int) -> float:
    """Return how long a message takes over a single NVLink, of the several that join two GPUs."""
    return _LATENCY_NS + size_bytes / _LEAST_BYTES_PER_NS


def transfer_times(
    start_ns: Int64, end_ns: Int64, took_ns: Int64, kind: Int32 | Int64, known: Bool, error_ns: int | None
) -> Int64:
    """Return how long the transfer of each of n instances took, int64 [n].

    start_ns, end_ns: of k ranks on the run's clock, int64 [k, n].
    took_ns: the time between them on each rank's own clock, int64 [k, n].
    kind: index into `KINDS`, int [n].
    known: which ranks took part, bool [k, n].
    error_ns: by how much times of two ranks may be off each other; None if they cannot be compared.
    """
    begin_ns = np.where(known, start_ns, np.iinfo(np.int64).min).max(axis=0)
    last_end_ns = np.where(known, end_ns, np.iinfo(np.int64).min).max(axis=0)
    may_be_last = known & (start_ns >= begin_ns - (_LONGEST // 4 if error_ns is None else error_ns))
    result: Int64 = np.where(
        SYNCHRONISING[kind] | (error_ns is None),
        np.where(may_be_last, took_ns, _LONGEST).min(axis=0),
        np.maximum(last_end_ns - begin_ns, 0),
    )
    return result
