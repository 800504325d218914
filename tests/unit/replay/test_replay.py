"""Replays against times worked out by hand, and against a simple loop over the operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.replay.replay import CyclicGraphError, DependencyGraph, ReplayTimes, build_graph

Edges = Sequence[tuple[int, int]]


def graph(count: int, edges: Edges, groups: dict[int, int] | None = None) -> DependencyGraph:
    """`edges`: (before, after). `groups`: of operations that synchronise."""
    pairs = np.array(list(edges), dtype=np.int64).reshape(-1, 2)
    group = np.array([(groups or {}).get(i, -1) for i in range(count)], dtype=np.int64)
    return build_graph(count, pairs[:, 0], pairs[:, 1], group)


def replay(dependencies: DependencyGraph, *durations: Sequence[float]) -> ReplayTimes:
    return dependencies.replay(np.array(durations, dtype=np.float64).T)


def test_each_member_of_a_group_ends_its_transfer_after_the_last_has_started() -> None:
    """
    rank 0   work 5   | all_reduce (transfer 2) from 20: ends 22   | work 1: ends 23
    rank 1   work 20  | all_reduce (transfer 3) from 20: ends 23   | work 1: ends 24
    """
    edges = [(0, 1), (1, 2), (3, 4), (4, 5)]
    times = replay(graph(6, edges, {1: 7, 4: 7}), [5, 2, 1, 20, 3, 1])
    assert times.start[:, 0].tolist() == [0, 5, 22, 0, 20, 23]
    assert times.end[:, 0].tolist() == [5, 22, 23, 20, 23, 24]


def test_replicas_do_not_wait_for_each_other() -> None:
    """GIVEN two steps with the same graph but different slow ranks THEN each step waits for its slow rank only."""
    times = replay(graph(4, [(0, 1), (2, 3)], {1: 0, 3: 0}), [10, 1, 2, 1], [3, 1, 30, 1])
    assert times.span.tolist() == [11, 31]
    assert times.start[1].tolist() == [10, 3]


def test_operations_that_wait_for_each_other_are_named() -> None:
    with pytest.raises(CyclicGraphError) as cyclic:
        graph(4, [(0, 1), (1, 2), (2, 1), (2, 3)])
    assert cyclic.value.operations.tolist() == [1, 2, 3]


def test_a_member_that_waits_for_its_group_is_an_error() -> None:
    with pytest.raises(CyclicGraphError):
        graph(3, [(0, 1), (1, 2)], {0: 0, 2: 0})


def test_a_graph_without_operations_takes_no_time() -> None:
    assert replay(graph(0, []), []).span.tolist() == [0.0]
    assert graph(0, []).span(np.empty((0, 1))).tolist() == [0.0]


@st.composite
def jobs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]], dict[int, int], list[int]]:
    """Draw operations that wait for earlier ones; those that wait for none may synchronise."""
    count = draw(st.integers(1, 12))
    pairs = [(i, j) for j in range(count) for i in range(j)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    waits = {after for _, after in edges}
    groups = {i: 0 for i in range(count) if i not in waits and draw(st.booleans())}
    return count, edges, groups, draw(st.lists(st.integers(0, 50), min_size=count, max_size=count))


@given(jobs())
def test_a_replay_equals_a_loop_over_the_operations(
    job: tuple[int, list[tuple[int, int]], dict[int, int], list[int]],
) -> None:
    count, edges, groups, durations = job
    times = replay(graph(count, edges, groups), durations)
    ends: list[int] = []
    for i in range(count):  # members of the group wait for nothing: they start at 0
        started = max((ends[before] for before, after in edges if after == i), default=0)
        assert times.start[i, 0] == started
        ends.append(started + durations[i])
    assert times.end[:, 0].tolist() == ends


@given(jobs(), st.integers(0, 11), st.integers(0, 100))
def test_longer_operations_never_shorten_the_whole(
    job: tuple[int, list[tuple[int, int]], dict[int, int], list[int]], which: int, more: int
) -> None:
    count, edges, groups, durations = job
    longer = [d + more * (i == which) for i, d in enumerate(durations)]
    short, long = replay(graph(count, edges, groups), durations, longer).span.tolist()
    assert short <= long <= short + more
