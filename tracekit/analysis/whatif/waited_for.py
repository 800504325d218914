"""For which ranks others wait, as a replay shows: if such a rank is faster, another one ends its steps earlier."""

from __future__ import annotations

from collections.abc import Iterable

from tracekit.analysis.replay.operation_graph import OperationGraph
from tracekit.analysis.whatif.changes import Change
from tracekit.analysis.whatif.peer_levels import at_peers_level

_SHARE = 0.1  # of what the rank itself gains: less may be an error of the clocks

__all__ = ["ranks_waited_for"]


def ranks_waited_for(graph: OperationGraph, changes: Iterable[Change]) -> frozenset[int]:
    """Return the ranks that are changed alone and that others wait for. A message that nobody waits for is no wait."""
    ranks = [change.rank for change in changes if change.remedy == "ranks" and change.rank is not None]
    return frozenset(rank for rank in ranks if _is_waited_for(graph, rank))


def _is_waited_for(graph: OperationGraph, rank: int) -> bool:
    for group, faster_ns in zip(graph.step_groups, at_peers_level(graph, (rank,)), strict=True):
        before_ns, after_ns = group.rank_ends_ns(group.duration_ns), group.rank_ends_ns(faster_ns)
        gains_ns = {other: end_ns - after_ns[other] for other, end_ns in before_ns.items()}
        own_ns = gains_ns.pop(rank, 0.0)
        if own_ns > 0 and max(gains_ns.values(), default=0.0) >= _SHARE * own_ns:
            return True
    return False
