"""Which links take longer than others for the same, and how long transfers would take at the speed of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.communication.slow_messages import Reference, UsualTime, usual_of_alike, usual_without_alike
from tracekit.analysis.replay.operation_graph import OperationGraph
from tracekit.model.events import ABSENT, Float64, Int64

__all__ = ["SlowLink", "find_slow_links", "link_at_others_speed"]


@dataclass(frozen=True, kw_only=True)
class SlowLink:
    """A link whose transfers take longer than those of other links that carry the same.

    Attributes:
        number: index into the links of the graph.
        excess_ns: how much longer all its transfers take together.
        usual_ns: by kind of task how long the others take, the median of their medians.
        reference: what the link is compared with.
    """

    number: int
    excess_ns: float
    usual_ns: Mapping[int, float]
    reference: Reference


def find_slow_links(graph: OperationGraph) -> list[SlowLink]:
    """Return the slow links, the slowest first.

    Links are compared that carry the same kind and size, among as many ranks on as many machines. For messages that no
    other link carries across as many machines there is `communication.link_references`. Those of unknown size are not
    compared.
    """
    hosts = np.array([len({graph.machines.get(rank) for rank in ranks}) for ranks in graph.links], dtype=np.int64)
    kind, link, duration_ns = _transfers(graph)
    unknown = [number for number, size_bytes in graph.message_bytes.items() if size_bytes == ABSENT]
    comparable = ~np.isin(kind, unknown)
    kind, link, duration_ns = kind[comparable], link[comparable], duration_ns[comparable]
    if not len(kind):
        return []
    pairs, pair = np.unique(np.stack((kind, hosts[link], link)), axis=1, return_inverse=True)
    order = np.lexsort((duration_ns, pair.reshape(-1)))
    counts = np.bincount(pair.reshape(-1))
    first = np.cumsum(counts) - counts
    ordered = duration_ns[order]
    median_ns = (ordered[first + (counts - 1) // 2] + ordered[first + counts // 2]) / 2
    excess_ns: dict[int, float] = {}
    usual_ns: dict[int, dict[int, float]] = {}
    references: dict[int, Reference] = {}
    cargo = np.unique(pairs[:2], axis=1, return_inverse=True)[1].reshape(-1)
    for which_cargo in range(int(cargo.max()) + 1):
        alike = np.flatnonzero(cargo == which_cargo)
        for place in alike.tolist():
            of_kind, _, which = pairs[:, place].tolist()
            usual = _usual(graph, pairs, median_ns, place, alike)
            if usual is not None and median_ns[place] > usual.limit_ns:
                excess_ns[which] = excess_ns.get(which, 0.0) + (median_ns[place] - usual.usual_ns) * counts[place]
                usual_ns.setdefault(which, {})[of_kind] = usual.usual_ns
                references.setdefault(which, usual.reference)
    slowest = sorted(excess_ns, key=lambda which: -excess_ns[which])
    return [SlowLink(number=n, excess_ns=excess_ns[n], usual_ns=usual_ns[n], reference=references[n]) for n in slowest]


def _usual(graph: OperationGraph, pairs: Int64, median_ns: Float64, place: int, alike: Int64) -> UsualTime | None:
    """Return how long the transfers of a link usually take; None if nothing tells.

    pairs: kind, machines and link, int64 [3, p]. median_ns: float64 [p]. place: of the link among them. alike: those of
    the same kind on as many machines, int64 [a].
    """
    kind, machines, which = pairs[:, place].tolist()
    if len(alike) > 1:
        return usual_of_alike(float(np.median(median_ns[alike[alike != place]])))
    if kind not in graph.message_bytes or None in graph.machines.values():
        return None
    elsewhere_ns = median_ns[(pairs[0] == kind) & (pairs[1] != machines)]
    devices = [graph.devices.get(rank) for rank in graph.links[which]]
    return usual_without_alike(elsewhere_ns, hosts=machines, size_bytes=graph.message_bytes[kind], devices=devices)


def link_at_others_speed(graph: OperationGraph, slow: SlowLink) -> list[Float64]:
    """Return the durations, float64 [n, k] of each group of steps, with the link's transfers as long as on others.

    Transfers change by the ratio of the usual one to the link's median, so that they vary as before.
    """
    kind, link, duration_ns = _transfers(graph)
    factors = np.ones(int(max(group.kind.max(initial=0) for group in graph.step_groups)) + 1)
    for number, usual in slow.usual_ns.items():
        factors[number] = usual / float(np.median(duration_ns[(kind == number) & (link == slow.number)]))
    result = []
    for group in graph.step_groups:
        assert group.link is not None
        factor = np.where(group.link == slow.number, factors[group.kind[group.task]], 1.0)
        result.append(group.duration_ns * factor[:, None])
    return result


def _transfers(graph: OperationGraph) -> tuple[Int64, Int64, Float64]:
    """Return kind, link and duration of all transfers over known links."""
    parts = []
    for group in graph.step_groups:
        if group.link is not None:
            rows = np.flatnonzero(group.link >= 0)
            replicas = group.duration_ns.shape[1]
            kind, link = group.kind[group.task[rows]], group.link[rows]
            parts.append((np.repeat(kind, replicas), np.repeat(link, replicas), group.duration_ns[rows].ravel()))
    if not parts:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
    kind, link, duration_ns = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return kind, link, duration_ns
