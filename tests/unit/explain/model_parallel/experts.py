"""Simulated ranks that exchange tokens in kernels that name no sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.simulated import Cluster

STEPS, LAYERS = 6, 4
ATTENTION_NS, EXPERTS_NS = 1000, 2000


def exchange_tokens(
    loads: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    *,
    pace: Mapping[int, float] | None = None,
    hot_layers: Sequence[int] = range(LAYERS),
    kinds: tuple[str, str] = ("dispatch", "combine"),
    notified: bool = False,
    weights: bool = False,
    attention_ns: int = ATTENTION_NS,
    more_work_ns: Mapping[int, int] | None = None,
) -> Cluster:
    """Let ranks compute attention, dispatch, compute experts and combine, in each layer, then reduce.

    loads: of each rank's experts in `hot_layers`; 1 is an even share. pace: times that a rank takes for all that it
    computes. notified: each exchange has a notification before it, a kernel of its own. weights: of the tokens, which
    follow them in an exchange of another size. more_work_ns: what a rank computes more, before the last layer of each
    step.
    """
    cluster, ranks = Cluster(len(loads)), range(len(loads))
    for _ in cluster.steps(STEPS):
        for layer in range(LAYERS):
            for rank in ranks:
                slower = (pace or {}).get(rank, 1.0)
                more_ns = (more_work_ns or {}).get(rank, 0) if layer == LAYERS - 1 else 0
                cluster.work(rank, compute=round(slower * (attention_ns + more_ns)))
            for kind in (kinds[0],) * (1 + notified):
                cluster.collective(ranks, kind=kind)
            if weights:
                cluster.collective(ranks, kind=kinds[0], size_bytes=8 + layer)
            for rank in ranks:
                load = loads[rank] if layer in hot_layers else 1.0
                cluster.work(rank, compute=round((pace or {}).get(rank, 1.0) * EXPERTS_NS * load))
            for kind in (kinds[1],) * (1 + notified):
                cluster.collective(ranks, kind=kind)
        cluster.collective(ranks)
    return cluster
