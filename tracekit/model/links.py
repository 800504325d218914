"""What makes the bandwidths of different collectives comparable."""

from __future__ import annotations

__all__ = ["bus_factor"]


def bus_factor(kind: str, ranks: int) -> float:
    """Return busbw / algbw in a group of `ranks` (NVIDIA nccl-tests, PERFORMANCE.md)."""
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if kind in {"reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"}:
        return (ranks - 1) / ranks
    return 1.0
