"""How late the last rank is to instances that queue behind each other, by hand. Times are microseconds."""

from __future__ import annotations

import numpy as np

from tracekit.explain.stragglers.collective_instances import ArrivalOrder, lateness

FREE = -(10**9)  # the stream was free all the time


def order(*rows: tuple[int, int, int], error: int = 0) -> ArrivalOrder:
    """`rows`: of each instance when the last rank was ready, when the second to last, and until when a stream was
    busy."""
    last, second, free = np.array(rows, dtype=np.int64).T
    none = np.full(len(rows), -1)
    return ArrivalOrder(
        last_ns=last,
        second_ns=second,
        median_ns=second - 10,
        free_ns=free,
        busy=none,
        busy_row=none,
        error_ns=np.full(len(rows), error),
    )


def late(order: ArrivalOrder, *before: int) -> list[int]:
    return lateness(order, np.array(before))[0].tolist()


def test_the_last_rank_is_late_by_what_the_second_to_last_could_have_begun_earlier() -> None:
    late_ns, behind_ns = lateness(order((150, 100, FREE)), np.array([-1]))
    assert (late_ns.tolist(), behind_ns.tolist()) == ([50], [60])


def test_nobody_is_late_while_the_stream_is_busy() -> None:
    assert late(order((150, 100, 130)), -1) == [20]
    assert late(order((150, 100, 180)), -1) == [0]


def test_a_queue_that_the_same_rank_delayed_does_not_hide_how_late_it_is() -> None:
    """GIVEN buckets that the slow rank has at 150 and 300, the others at 100 and 200, each reduced in 90.

    THEN without it the second begins at 200, and not at 300."""
    assert late(order((150, 100, FREE), (300, 200, 240)), -1, 0) == [50, 100]


def test_a_chain_is_late_no_longer_than_its_ranks_have_waited() -> None:
    """GIVEN a first bucket that begins 50 late, and a second that the others have just 20 before it can begin."""
    assert late(order((150, 100, FREE), (230, 220, 240)), -1, 0) == [50, 20]


def test_lateness_within_the_error_of_the_clocks_is_none() -> None:
    assert late(order((150, 100, FREE), error=49), -1) == [50]
    assert late(order((150, 100, FREE), error=50), -1) == [0]
