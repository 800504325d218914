"""Intervals agree with sets of integers: an interval is the set of the nanoseconds it covers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.model.intervals import EMPTY, Intervals, beyond_earlier

Pairs = list[tuple[int, int]]

# In so small a range, backward, empty, touching, nested and repeated pairs all occur.
PAIRS: st.SearchStrategy[Pairs] = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), max_size=12)
POINTS = st.integers(-25, 25)
quick = settings(max_examples=150, deadline=None)


def of(pairs: Pairs) -> Intervals:
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Intervals.union_of(array[:, 0], array[:, 1])


def points(pairs: Pairs) -> set[int]:
    return {point for start, end in pairs for point in range(start, end)}


def covered(intervals: Intervals) -> set[int]:
    """Return the nanoseconds of a result. Assert that it is sorted, disjoint and without empty or touching
    intervals.
    """
    starts, ends = intervals.start_ns.tolist(), intervals.end_ns.tolist()
    assert all(start < end for start, end in zip(starts, ends, strict=True))
    assert all(end < start for end, start in zip(ends[:-1], starts[1:], strict=True))
    assert intervals.start_ns.dtype == intervals.end_ns.dtype == np.int64
    nanoseconds = points(list(zip(starts, ends, strict=True)))
    assert intervals.len_ns == len(nanoseconds)
    return nanoseconds


@quick
@given(PAIRS)
def test_union_of_any_pairs(pairs: Pairs) -> None:
    assert covered(of(pairs)) == points(pairs)


@quick
@given(PAIRS, PAIRS)
def test_operators_are_those_of_sets(a: Pairs, b: Pairs) -> None:
    assert covered(of(a) | of(b)) == points(a) | points(b)
    assert covered(of(a) & of(b)) == points(a) & points(b)
    assert covered(of(a) - of(b)) == points(a) - points(b)


@quick
@given(PAIRS, POINTS, POINTS)
def test_clip_and_gaps_split_a_window(pairs: Pairs, start: int, end: int) -> None:
    window = set(range(start, end))
    assert covered(of(pairs).clip(start, end)) == points(pairs) & window
    assert covered(of(pairs).gaps(start, end)) == window - points(pairs)


@quick
@given(PAIRS, st.lists(POINTS, max_size=10))
def test_covers_includes_starts_and_excludes_ends(pairs: Pairs, times: list[int]) -> None:
    inside = of(pairs).covers(np.array(times, dtype=np.int64))
    assert inside.tolist() == [time in points(pairs) for time in times]


@quick
@given(PAIRS, st.lists(POINTS, max_size=10))
def test_how_much_of_a_set_is_before_a_time(pairs: Pairs, times: list[int]) -> None:
    before = of(pairs).covered_before(np.array(times, dtype=np.int64))
    assert before.tolist() == [len([point for point in points(pairs) if point < time]) for time in times]


@quick
@given(PAIRS, st.lists(st.integers(1, 45), max_size=10))
def test_when_so_much_of_a_set_is_past(pairs: Pairs, amounts: list[int]) -> None:
    past, never = sorted(points(pairs)), np.iinfo(np.int64).max
    when = of(pairs).when_covered(np.array(amounts, dtype=np.int64))
    assert when.tolist() == [past[amount - 1] + 1 if amount <= len(past) else never for amount in amounts]


@quick
@given(PAIRS, PAIRS, PAIRS)
def test_exposed_and_overlapped_add_up_and_unions_do_not_shrink(a: Pairs, b: Pairs, c: Pairs) -> None:
    """Invariants 1, 3 and 6 of the definitions."""
    comm, compute = of(a), of(b)
    overlapped, exposed = comm & compute, comm - compute
    assert exposed.len_ns + overlapped.len_ns == comm.len_ns
    assert overlapped.len_ns <= min(comm.len_ns, compute.len_ns)
    assert (comm | of(c)).len_ns >= comm.len_ns


def test_touching_intervals_merge_and_share_nothing() -> None:
    assert of([(0, 5), (5, 9)]) == of([(0, 9)])
    assert len(of([(0, 5)]) & of([(5, 9)])) == 0
    assert of([(0, 9)]) - of([(0, 5)]) == of([(5, 9)])


def test_equality_and_repr() -> None:
    assert of([(0, 1)]) != of([(0, 2)])
    assert of([(0, 1)]) != "x"
    assert repr(of([(5, 7), (0, 2)])) == "Intervals([(0, 2), (5, 7)])"
    with pytest.raises(TypeError):
        hash(EMPTY)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=12))
def test_parts_beyond_earlier_intervals_add_up_to_the_union(spans: list[tuple[int, int]]) -> None:
    start_ns = np.array([start for start, _ in spans], dtype=np.int64)
    end_ns = start_ns + np.array([length for _, length in spans], dtype=np.int64)
    begin_ns, finish_ns = beyond_earlier(start_ns, end_ns)
    uncovered = [set(range(begin, finish)) for begin, finish in zip(begin_ns.tolist(), finish_ns.tolist(), strict=True)]
    assert sum(map(len, uncovered)) == len(set().union(*uncovered)) == Intervals.union_of(start_ns, end_ns).len_ns
