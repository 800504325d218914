"""Which links are slower than others that carry the same, by planted transfers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulated import Cluster
from tracekit.explain.stragglers.arrivals import arrivals_of
from tracekit.explain.stragglers.slow_transfers import SlowTransfers, slow_transfers
from tracekit.model.run import Run

STEPS = 6
PAIRS = ((0, 1), (2, 3), (4, 5))
TOOK_NS = (200, 600, 200)


def found(run: Run) -> SlowTransfers:
    return slow_transfers(run, arrivals_of(run, frozenset(range(STEPS))))


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


def test_messages_of_unknown_size_are_not_compared() -> None:
    slow = found(exchanging(messages=True, size_bytes=-1))

    assert slow.links == ()
    assert slow.slow_ns.sum() == 0


LINKS = ((0, 1), (1, 2), (2, 3), (3, 0))
US = 1000


def awaited_late(posted_before_us: Sequence[Sequence[int]], took_us: Sequence[int]) -> Run:
    """Return four ranks that send each other messages round a ring.

    posted_before_us: of each step and link how long before it waits for the message its receiver posts the receive.
    took_us: of each link how long its messages take.
    """
    cluster = Cluster(4)
    for step in cluster.steps(len(posted_before_us)):
        for rank in range(4):
            cluster.work(rank, compute=50_000 * US)
        for link, took, before in zip(LINKS, took_us, posted_before_us[step], strict=True):
            cluster.message(*link, transfer=took * US, posted_before=before * US)
    return cluster.run()


def test_a_receive_that_is_posted_early_and_awaited_late_is_no_slow_transfer() -> None:
    """GIVEN messages that take 1 ms. One link's receives are posted 40 ms before anybody waits."""
    slow = found(awaited_late([(0, 0, 0, 40_000)] * STEPS, (1000,) * 4))

    assert slow.links == ()
    assert slow.slow_ns.sum() == 0


@settings(deadline=None, max_examples=60)
@given(
    posted_before_us=st.lists(st.tuples(*[st.integers(0, 40_000)] * 4), min_size=4, max_size=8),
    factor=st.integers(2, 20),
    place=st.integers(0, 3),
)
def test_a_slow_link_is_found_if_waits_block_on_it(
    posted_before_us: list[tuple[int, ...]], factor: int, place: int
) -> None:
    """GIVEN links whose receivers wait at once for every second message or more often."""
    took_us = [1000 * (factor if i == place else 1) for i in range(4)]
    at_once = [(0, 0, 0, 0)] * len(posted_before_us)

    slow = found(awaited_late([*posted_before_us, *at_once], took_us))

    (link,) = slow.links
    assert (link.ranks, link.directed) == (LINKS[place], True)
    assert link.slowdown == pytest.approx(factor)
    rows = np.flatnonzero(slow.link >= 0)
    assert (slow.slow_ns[rows] <= (factor - 1) * 1000 * US).all()
    assert slow.slow_ns.sum() >= len(at_once) * (factor - 1) * 1000 * US


@pytest.mark.parametrize("fastest_us", [1000, 3000])
def test_a_link_whose_fastest_message_is_as_quick_as_others_is_not_slow(fastest_us: int) -> None:
    """GIVEN messages of 1 ms, and on one link of 5 to 9 ms, because a busy machine wakes their receivers late."""
    cluster = Cluster(6)
    for step in cluster.steps(STEPS):
        for rank in range(6):
            cluster.work(rank, compute=50_000 * US)
        slow_us = fastest_us if step == 2 else 5000 + 800 * step
        for pair, took_us in zip(PAIRS, (1000, slow_us, 1000), strict=True):
            cluster.message(*pair, transfer=took_us * US)
        meet(cluster)

    slow = found(cluster.run())

    assert [link.ranks for link in slow.links] == ([] if fastest_us == 1000 else [(2, 3)])


def meet(cluster: Cluster) -> None:
    """Let all ranks go on at the same time."""
    latest = max(state.now for state in cluster.ranks)
    for rank, state in enumerate(cluster.ranks):
        cluster.work(rank, host=latest - state.now)
