"""Which ranks send messages to which, how much, and how fast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.matching.message_times import message_sizes, message_transfers
from tracekit.analysis.stats.row_numbers import number_rows
from tracekit.model.columnar import Columnar
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import Run

__all__ = ["RankPairs", "rank_pairs"]


@dataclass(frozen=True, kw_only=True, eq=False)
class RankPairs(Columnar):
    """k ordered pairs of ranks that exchanged messages, by sender, then receiver. int64 [k] each.

    Attributes:
        source: the sender, or the lowest of the ranks that it stands for.
        destination: the receiver, likewise.
        count: messages that were matched on both sides.
        size_bytes: of these whose size is known.
        transfer_ns: how long those took whose time is known, from when both sides were ready.
        transfer_bytes: the size of those whose size and time are known.
    """

    source: Int64
    destination: Int64
    count: Int64
    size_bytes: Int64
    transfer_ns: Int64
    transfer_bytes: Int64


def rank_pairs(run: Run, ranks_per_cell: int = 1) -> RankPairs:
    """Return the sums over the run's matched messages. Ranks are counted together, so many consecutive ones."""
    matched = run.messages
    if not len(matched):
        return RankPairs.empty()
    source = matched.source.astype(np.int64) // ranks_per_cell * ranks_per_cell
    destination = matched.destination.astype(np.int64) // ranks_per_cell * ranks_per_cell
    size_bytes, took_ns = message_sizes(run), message_transfers(run).took_ns
    pair = number_rows(source, destination)
    first = np.unique(pair, return_index=True)[1]

    def sums(values: Int64, known: np.ndarray) -> Int64:
        result = np.zeros(len(first), dtype=np.int64)
        np.add.at(result, pair[known], values[known])
        return result

    sized, timed = size_bytes != ABSENT, took_ns > 0
    pairs = RankPairs(
        source=source[first],
        destination=destination[first],
        count=np.bincount(pair),
        size_bytes=sums(size_bytes, sized),
        transfer_ns=sums(took_ns, timed),
        transfer_bytes=sums(size_bytes, sized & timed),
    )
    return pairs.rows(np.lexsort((pairs.destination, pairs.source)))
