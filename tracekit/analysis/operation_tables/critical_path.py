"""The longest chain of operations over all ranks, step by step: what it consists of, and on which ranks it lies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.operation_tables import columns
from tracekit.analysis.operation_tables.graph.named_graph import NamedGraph
from tracekit.analysis.replay.critical_chain import critical_chains
from tracekit.analysis.table import Frame

__all__ = ["TableCriticalPath", "table_critical_path"]


@dataclass(frozen=True, kw_only=True)
class TableCriticalPath:
    """The longest chains of all steps, in the replay of what was measured.

    Attributes:
        by_rank: rows of columns.CRITICAL_PATH_RANKS, the longest first.
        by_step: rows of columns.CRITICAL_PATH_STEPS, by step.
    """

    by_rank: Frame = Frame(columns.CRITICAL_PATH_RANKS)
    by_step: Frame = Frame(columns.CRITICAL_PATH_STEPS)


def table_critical_path(named: NamedGraph) -> TableCriticalPath:
    """Return the longest chains. The times of a step sum to its replayed length, to the ns."""
    total_ns: Counter[tuple[int, int]] = Counter()
    by_step: dict[int, dict[str, object]] = {}
    for group in named.graph.step_groups:
        links = critical_chains(group.graph, group.duration_ns)
        bounds = np.searchsorted(links.replica, np.arange(len(group.steps) + 1))
        for place, step in enumerate(group.steps.tolist()):
            of_step = slice(int(bounds[place]), int(bounds[place + 1]))
            operation = links.operation[of_step]
            reached_ns = np.rint(np.cumsum(links.length_ns[of_step])).astype(np.int64)
            length_ns = np.diff(reached_ns, prepend=0)
            rank, type_ = group.rank[operation], group.type[operation]
            of_ranks: Counter[int] = Counter()
            for key, value in zip(zip(rank.tolist(), type_.tolist(), strict=True), length_ns.tolist(), strict=True):
                total_ns[key] += value
                of_ranks[key[0]] += value
            transfers = np.isin(group.kind[operation], sorted(named.graph.communication_kinds))
            pauses = np.isin(type_, sorted(named.pause_types))
            longest = min(of_ranks, key=lambda number: (-of_ranks[number], number))
            by_step[step] = {
                "step": step,
                "step_ns": int(length_ns.sum()),
                "compute_ns": int(length_ns[~transfers & ~pauses].sum()),
                "transfer_ns": int(length_ns[transfers].sum()),
                "pause_ns": int(length_ns[pauses].sum()),
                "rank": longest,
                "rank_ns": of_ranks[longest],
            }
    whole_ns = max(sum(total_ns.values()), 1)
    by_rank: list[dict[str, object]] = [
        {"rank": rank, "operation": named.graph.types[type_], "total_ns": time_ns, "share": time_ns / whole_ns}
        for (rank, type_), time_ns in sorted(total_ns.items(), key=lambda item: (-item[1], item[0]))
        if time_ns > 0
    ]
    return TableCriticalPath(by_rank=by_rank, by_step=[by_step[step] for step in sorted(by_step)])
