"""Communication for the HTML report: spreads of skews, bandwidth against size, pairs of ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tracekit.analysis.communication.distributions import CollectiveTimesOfSize, TimesOfGroup, collective_distributions
from tracekit.analysis.matching.message_times import rank_pairs
from tracekit.model.events import Int64
from tracekit.model.run import Run
from tracekit.render.page.chart_contract import Bandwidth, MessagePairs, Skew

__all__ = ["message_pairs", "skews_and_bandwidths"]

_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_BINS = 24
_SMALLEST_NS = 1_000  # the upper bound of the first bin


def skews_and_bandwidths(groups: Iterable[TimesOfGroup], result: dict[str, Any]) -> tuple[list[Skew], list[Bandwidth]]:
    """Return the spreads of the rows of `result["collectives"]`, in their order."""
    place = {(row["group"], row["kind"], row["size_bytes"]): i for i, row in enumerate(result.get("collectives") or [])}
    if not place:
        return [], []
    found = {place[key]: times for times in collective_distributions(groups) if (key := _key(times)) in place}
    skews, bandwidths = [], []
    for row, times in sorted(found.items()):
        skews.append(_skew(row, times))
        if (point := _bandwidth(row, result["collectives"][row], times.transfer_ns)) is not None:
            bandwidths.append(point)
    return skews, bandwidths


def _key(times: CollectiveTimesOfSize) -> tuple[int, str, int | None]:
    return times.group, times.kind, times.size_bytes


def _skew(row: int, times: CollectiveTimesOfSize) -> Skew:
    skew_ns = times.skew_ns
    top = max(int(skew_ns.max()), 2 * _SMALLEST_NS)
    edges_ns = np.unique(np.geomspace(_SMALLEST_NS, top, _BINS).round().astype(np.int64))
    edges_ns[-1] = top
    edges_ns = np.concatenate(([0], edges_ns))
    return Skew(
        row=row,
        quantiles_ns=[int(value) for value in np.quantile(skew_ns, _QUANTILES, method="inverted_cdf")],
        edges_ns=edges_ns.tolist(),
        counts=np.histogram(skew_ns, bins=edges_ns)[0].tolist(),
        error_ns=times.error_ns,
    )


def _bandwidth(row: int, collective: dict[str, Any], transfer_ns: Int64) -> Bandwidth | None:
    busbw_bps, usual_ns = collective["busbw_bps"], collective["transfer_p50_ns"]
    if not busbw_bps or not collective["size_bytes"]:
        return None
    short_ns, long_ns = (max(int(value), 1) for value in np.quantile(transfer_ns, (0.1, 0.9), method="inverted_cdf"))
    return Bandwidth(
        row=row,
        size_bytes=collective["size_bytes"],
        busbw_bps=busbw_bps,
        low_bps=busbw_bps * usual_ns / long_ns,
        high_bps=busbw_bps * usual_ns / short_ns,
    )


def message_pairs(run: Run, most_pairs: int) -> MessagePairs | None:
    """Return the pairs of ranks that exchange messages.

    Where there are more than `most_pairs`, neighbouring ranks are counted together.
    """
    ranks_per_cell, pairs = 1, rank_pairs(run)
    while len(pairs) > most_pairs:
        ranks_per_cell *= 2
        pairs = rank_pairs(run, ranks_per_cell)
    if not len(pairs):
        return None
    transfers = list(zip(pairs.transfer_bytes.tolist(), pairs.transfer_ns.tolist(), strict=True))
    return MessagePairs(
        ranks_per_cell=ranks_per_cell,
        source=pairs.source.tolist(),
        destination=pairs.destination.tolist(),
        count=pairs.count.tolist(),
        size_bytes=[size or None for size in pairs.size_bytes.tolist()],
        transfer_ns=[time_ns or None for time_ns in pairs.transfer_ns.tolist()],
        mean_bps=[size / time_ns * 1e9 if size and time_ns else None for size, time_ns in transfers],
    )
