"""Which links are slower than others that carry the same, by planted transfers."""

from __future__ import annotations

import pytest

from tests.unit.analysis.simulated import Cluster
from tracekit.analysis.stragglers.arrivals.arrivals import arrivals_of
from tracekit.analysis.stragglers.slow_transfers import SlowTransfers, slow_transfers
from tracekit.model.run import Run

STEPS = 6
PAIRS = ((0, 1), (2, 3), (4, 5))
TOOK_NS = (200, 600, 200)


def found(run: Run) -> SlowTransfers:
    arrivals = arrivals_of(run, frozenset(range(STEPS)))
    return slow_transfers(run, arrivals.instances, arrivals.collectives)


def exchanging(*, messages: bool, size_bytes: int = 64) -> Run:
    """Return pairs of CPU ranks that exchange one message or collective a step; the second pair's take 3 times as
    long.
    """
    cluster = Cluster(6)
    for _ in cluster.steps(STEPS):
        for pair, took_ns in zip(PAIRS, TOOK_NS, strict=True):
            for rank in pair:
                cluster.work(rank, compute=1000)
            if messages:
                cluster.message(*pair, transfer=took_ns, size_bytes=size_bytes)
            else:
                cluster.collective(pair, transfer=took_ns, size_bytes=size_bytes)
    return cluster.run()


@pytest.mark.parametrize("messages", [True, False])
def test_a_link_carries_messages_or_is_a_group_of_two_ranks(messages: bool) -> None:
    slow = found(exchanging(messages=messages))

    (link,) = slow.links
    assert (link.ranks, link.slowdown) == ((2, 3), 3.0)
    assert (link.carries_messages, link.directed) == (messages, messages)
    assert slow.slow_ns.sum() == STEPS * 400


def test_messages_of_unknown_size_are_not_compared() -> None:
    slow = found(exchanging(messages=True, size_bytes=-1))

    assert slow.links == ()
    assert slow.slow_ns.sum() == 0
