"""What the verdict on stragglers says of a slow rank and of a slow link."""

from __future__ import annotations

from tracekit.analysis.stragglers.slow_transfers import Link
from tracekit.model.ranks import format_ranges

__all__ = ["link_text", "rank_text"]


def rank_text(rank: int, cause: str | None, mean_ns: float, step_ns: float, peers_compute_ns: float, peers: int) -> str:
    """Return what a slow rank does longer than its peers, and by how much."""
    whom = "its peer" if peers == 1 else "the median of its peers"
    one = "s" * (peers == 1)
    delay, share = f"{mean_ns / 1e6:.1f} ms a step", f"{mean_ns / max(step_ns, 1):.0%} of it"
    wait = f"which wait{one} for it in communication"
    if cause == "host":
        return f"rank {rank} spends {delay} ({share}) longer between operations than {whom}, {wait}"
    if cause == "data":
        return f"rank {rank} loads data for {delay} ({share}) longer than {whom}, {wait}"
    if peers_compute_ns >= mean_ns / 10:
        share = f"{mean_ns / peers_compute_ns:.0%}"
    more = f"rank {rank} computes {delay} ({share}) longer than {whom}, {wait}"
    return f"{more}: it has more work" if cause == "more_work" else more


def link_text(link: Link, mean_ns: float, share: float) -> str:
    """Return how much longer than others a slow link takes."""
    if link.directed or len(link.ranks) == 2:
        name = f"the link from rank {link.ranks[0]} to rank {link.ranks[1]}"
    else:
        name = f"the links between ranks {format_ranges(link.ranks)}"
    verb = "takes" if link.directed or len(link.ranks) == 2 else "take"
    return (
        f"{name} {verb} {link.slowdown:.1f} times as long as others for the same: "
        f"{mean_ns / 1e6:.1f} ms a step ({share:.0%} of it)"
    )
