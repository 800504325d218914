"""Which ranks share a clock, as they run on one host.

A file of the probe names its host, and so do some other files. Else process ids tell: a launcher starts the processes
of a host one after the other, and the kernel numbers them in that order. Hosts number their processes each for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tracekit.model.summary import RankSummary

_MOST_BETWEEN = 4  # ids from one rank to the next: a launcher may start a thread or a helper for each

__all__ = ["host_of_ranks"]


def host_of_ranks(ranks: Sequence[RankSummary]) -> dict[int, str]:
    """Return what identifies the host of each rank whose host is known. `ranks` are in ascending order.

    Ranks without a named host share one if their process ids follow each other in the order of ranks.
    """
    hosts = {summary.rank: summary.machine for summary in ranks if summary.machine is not None}
    unnamed = [summary for summary in ranks if summary.machine is None and summary.process_id is not None]
    for one, other in pairwise(unnamed):
        if 0 < (other.process_id or 0) - (one.process_id or 0) <= _MOST_BETWEEN:
            hosts.setdefault(one.rank, f"the host of rank {one.rank}")
            hosts[other.rank] = hosts[one.rank]
    return hosts
