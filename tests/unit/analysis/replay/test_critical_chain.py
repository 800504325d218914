"""The chain of operations that bounds a replay, against graphs that are small enough to see it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis.replay.critical_chain import critical_chains, synchronised_members
from tracekit.analysis.replay.replay import build_graph


def test_the_chain_follows_what_ended_last_in_each_replica() -> None:
    """0 and 1 run at once, 2 waits for both. In replica 0 operation 0 is longer, in replica 1 operation 1."""
    graph = build_graph(3, np.array([0, 1]), np.array([2, 2]), np.full(3, -1))
    links = critical_chains(graph, np.array([[5.0, 2.0], [3.0, 7.0], [1.0, 1.0]]))
    assert links.replica.tolist() == [0, 0, 1, 1]
    assert links.operation.tolist() == [0, 2, 1, 2]
    assert links.length_ns.tolist() == [5.0, 1.0, 7.0, 1.0]


def test_a_collective_leads_to_the_rank_that_came_last() -> None:
    """Ranks compute 5 and 9, then meet for 2: the chain is the second rank's work, whichever member ends it."""
    graph = build_graph(4, np.array([0, 2]), np.array([1, 3]), np.array([-1, 0, -1, 0]))
    links = critical_chains(graph, np.array([[5.0], [2.0], [9.0], [2.0]]))
    assert links.operation[0] == 2
    assert links.length_ns.tolist() == [9.0, 2.0]
    assert sorted(synchronised_members(graph)) == [1, 3]


@given(
    durations=st.lists(st.integers(0, 50), min_size=2, max_size=12),
    seed=st.integers(0, 1000),
)
def test_the_chain_is_as_long_as_the_replay(durations: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = len(durations)
    pairs = [(i, j) for j in range(count) for i in range(j) if rng.random() < 0.3]
    before, after = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    graph = build_graph(count, before, after, np.full(count, -1))
    duration_ns = np.array(durations, dtype=np.float64)[:, None]
    links = critical_chains(graph, duration_ns)
    assert links.length_ns.sum() == graph.replay(duration_ns).span[0]
    assert (links.length_ns == duration_ns[links.operation, 0]).all()
    assert all(
        (i, j) in pairs for i, j in zip(links.operation[:-1].tolist(), links.operation[1:].tolist(), strict=True)
    )
