"""What does not fit in a table: clocks that disagree, operations of one rank at the same time, a replay that is off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from tracekit.analysis.pipeline.bubble_causes import MeasuredPipeline
from tracekit.model.events import Int64

__all__ = ["consistency_notes"]

_NOTABLE = 0.01  # of the messages, or of the time
_NOTABLE_WAITS = 0.05  # of the time of all ranks
_QUICK = 10  # percent of the messages are as quick
_SAME_TIME_NS = 1000
_REPLAY_ERROR = 0.1


def consistency_notes(pipelines: Sequence[MeasuredPipeline], replay_error: float, *, modelled: bool) -> Iterator[str]:
    """Yield sentences on what does not fit. modelled: the table's times are those of a model."""
    early, messages, earliest_ns, overlap_ns, busy_ns = 0, 0, 0, 0, 0
    for pipeline in pipelines:
        for order, edges in zip(pipeline.action_orders, pipeline.edges, strict=True):
            before_ns = order.end_ns[edges.producers] - order.start_ns[edges.consumers]
            early += int((before_ns > _SAME_TIME_NS).sum())
            messages += before_ns.size
            earliest_ns = max(earliest_ns, int(before_ns.max(initial=0)))
            over_ns = np.roll(order.end_ns, 1, axis=0) - order.start_ns
            overlap_ns += int(np.minimum(np.maximum(over_ns[~order.first], 0), order.work_ns[~order.first]).sum())
            busy_ns += int(order.work_ns.sum())
    if early > _NOTABLE * messages:
        yield (
            f"{early / messages:.0%} of the operations begin before what they need has ended, by up to "
            f"{earliest_ns / 1e6:.2f} ms: clocks of ranks differ, or times are those of hosts and not of devices; "
            "transfers and late peers are uncertain by as much"
        )
    if overlap_ns > _NOTABLE * busy_ns:
        yield (
            f"operations of one rank overlap for {overlap_ns / busy_ns:.0%} of their time; they are replayed one after "
            "another"
        )
    waiting, ranks_ns = _waiting_ns(pipelines)
    if not modelled and waiting > _NOTABLE_WAITS * ranks_ns:
        yield (
            f"ranks wait {waiting / ranks_ns:.0%} of the time longer for a message than the quickest of its kind, "
            "such as for others of its batch, or the host; no change is credited with that"
        )
    if abs(replay_error) > _REPLAY_ERROR:
        what = "the model of the schedule" if modelled else "the replay"
        yield f"{what} is off by {replay_error:+.0%}: do not trust savings that are smaller"


def _waiting_ns(pipelines: Sequence[MeasuredPipeline]) -> tuple[float, float]:
    """Return how long ranks wait for messages beyond the quickest of the same stages, and the time of all ranks."""
    waiting_ns, ranks_ns = 0.0, 0.0
    for pipeline in pipelines:
        took: dict[tuple[int, int], list[Int64]] = defaultdict(list)
        for order, edges, transfers in zip(pipeline.action_orders, pipeline.edges, pipeline.transfers, strict=True):
            ranks_ns += float(order.span_ns.sum()) * len(pipeline.ranks)
            stages = zip(order.stage[edges.producers].tolist(), order.stage[edges.consumers].tolist(), strict=True)
            for pair, took_ns in zip(stages, transfers.took_ns, strict=True):
                took[pair].append(took_ns)
        for parts in took.values():
            every = np.concatenate(parts)
            waiting_ns += float(np.maximum(every - np.percentile(every, _QUICK), 0).sum())
    return waiting_ns, max(ranks_ns, 1.0)
