"""What late hosts, data loading and slow links cost the steps of pipelines, beside what collectives show.

A delay of one rank reaches the others through messages, and part of it falls into their bubbles. So it is taken from a
replay of the pipeline (`pipeline.delays`). Collectives of the same rank may show the same delay; the larger one counts.
Of a slow link between stages the replay counts: slow messages that release a rank may end in a bubble. Slow
collectives within a stage, such as those of tensor parallelism, make its actions longer, or the transfers after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tracekit.analysis.pipeline.bubble_causes import MeasuredPipeline
from tracekit.analysis.pipeline.delays import SlowLink, gaps_before_ns, pipeline_delays, replay_with_less
from tracekit.analysis.stragglers.arrivals.collective_instances import CollectiveInstances
from tracekit.analysis.stragglers.delay_attribution import CAUSES, CausedDelays
from tracekit.analysis.stragglers.slow_transfers import SlowTransfers
from tracekit.model.events import Int64
from tracekit.model.run import Run

_HOST, _DATA = CAUSES.index("host"), CAUSES.index("data")

__all__ = ["with_pipeline_delays"]


def with_pipeline_delays(
    charges: CausedDelays,
    run: Run,
    pipelines: Sequence[MeasuredPipeline],
    instances: CollectiveInstances,
    transfers: SlowTransfers,
    steps: Sequence[int],
) -> CausedDelays:
    """Return the delays with those of pipelines. transfers: the slow ones of `instances`. steps: those of `charges`."""
    links = transfers.links
    ranks_ns, causes_ns, links_ns = charges.ranks_ns.copy(), charges.causes_ns.copy(), charges.links_ns.copy()
    place = {summary.rank: i for i, summary in enumerate(run.ranks)}
    for measured in pipelines:
        inside = [i for i, link in enumerate(links) if link.carries_messages and _has_edges(measured, link.ranks)]
        slow = [SlowLink(ranks=links[i].ranks, slowdown=links[i].slowdown) for i in inside]
        delays = pipeline_delays(measured, slow)
        column = np.searchsorted(steps, delays.steps)
        for i, added_ns in zip(inside, delays.links_ns, strict=True):
            links_ns[i, column] = added_ns
        for i, link in enumerate(links):
            if i not in inside and set(link.ranks) & set(measured.ranks):
                slow_rows = np.flatnonzero(transfers.link == i)
                times_ns = (instances.begin_ns[slow_rows], transfers.slow_ns[slow_rows])
                added_ns = _within_stages(measured, link.ranks, *times_ns)
                if added_ns.sum() > links_ns[i].sum():
                    links_ns[i] = 0
                    links_ns[i, column] = added_ns
        for rank, host_ns, data_ns in zip(measured.ranks, delays.host_ns, delays.data_ns, strict=True):
            member, of_rank_ns = place[rank], host_ns + data_ns
            if of_rank_ns.sum() > ranks_ns[member].sum():
                ranks_ns[member] = 0
                ranks_ns[member, column] = of_rank_ns
                causes_ns[member] = 0
                causes_ns[member, [_HOST, _DATA]] = host_ns.sum(), data_ns.sum()
    return replace(charges, ranks_ns=ranks_ns, causes_ns=causes_ns, links_ns=links_ns)


def _has_edges(measured: MeasuredPipeline, ranks: Sequence[int]) -> bool:
    """Return whether results of actions go from one of these ranks to another."""
    members = np.flatnonzero(np.isin(measured.ranks, ranks))
    return any(
        np.isin([order.rank[edges.producers], order.rank[edges.consumers]], members).all(axis=0).any()
        for order, edges in zip(measured.action_orders, measured.edges, strict=True)
    )


def _within_stages(measured: MeasuredPipeline, ranks: Sequence[int], begin_ns: Int64, slow_ns: Int64) -> Int64:
    """Return by how much steps are longer, int64 [k], because collectives of some ranks were slow.

    begin_ns: when each transfer began, int64 [m], on the run's clock. slow_ns: by how much it took too long, int64 [m].
    """
    by_time = np.argsort(begin_ns, kind="stable")
    begin_ns, total_ns = begin_ns[by_time], np.append(0, np.cumsum(slow_ns[by_time]))

    def between(since_ns: Int64, until_ns: Int64) -> Int64:
        """Return by how much the transfers that began within each period took too long, in the shape of the periods."""
        since, until = np.searchsorted(begin_ns, since_ns), np.searchsorted(begin_ns, until_ns)
        return np.asarray(total_ns[np.maximum(until, since)] - total_ns[since])

    members = np.flatnonzero(np.isin(measured.ranks, ranks))
    less_ns, numbers = [], []
    for order, edges, transfers in zip(measured.action_orders, measured.edges, measured.transfers, strict=True):
        here = np.isin(order.rank, members)[:, None]
        gaps_ns = gaps_before_ns(order, edges, transfers)
        work_ns = between(order.start_ns, order.end_ns) + between(order.start_ns - gaps_ns, order.start_ns)
        sides_ns = [
            np.where(after[:, None] >= 0, between(order.end_ns[after], transfers.ended_ns), 0) * here[after]
            for after in (edges.producers, transfers.posted_after)
        ]
        less_ns.append((work_ns * here, np.maximum(*sides_ns)))
        numbers.append(order.steps)
    saved_ns = replay_with_less(measured, less_ns)[1]
    return np.rint(saved_ns[np.argsort(np.concatenate(numbers), kind="stable")]).astype(np.int64)
