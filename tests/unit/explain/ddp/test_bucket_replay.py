"""When reductions run, and what of them is exposed. Times are milliseconds; the replay takes nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tracekit.explain.ddp.bucket_replay import BackwardPass, Replayed, Transfers, replay

MS = 1e6
ONE_EACH = ((0,), (1,), (2,))


def replayed(
    ready: Sequence[Sequence[float]],
    moved: Sequence[float],
    *,
    buckets: Sequence[Sequence[int]] = ONE_EACH,
    latency: float = 0,
    back: float = 0,
    in_flight: int = 1,
    late: float = 0,
) -> Replayed:
    """`ready`: for each rank when each gradient comes; the rank computes until the last one. `late`: how much longer
    the measured transfers took than they were to."""
    times = np.array(ready) * MS
    curves = [np.sort(of_rank[np.isfinite(of_rank)]) for of_rank in times]
    observed = BackwardPass(
        origin_ns=0.0,
        ready_ns=times,
        curve_ns=curves,
        compute_ns=[curve - curve[0] for curve in curves],
        back_ns=np.full(times.shape, back * MS),
    )
    transfers = Transfers(
        latency_ns=latency * MS,
        moved_ns=np.array(moved) * MS,
        until_ns=np.array([np.inf]),
        late_ns=np.array([late * MS]),
        dispatch_ns=0.0,
        in_flight=in_flight,
    )
    return replay(observed, buckets, transfers)


def test_only_what_comes_after_the_last_gradient_is_exposed() -> None:
    done = replayed([[10, 20, 30]], [5, 5, 5])
    assert done.uncovered_ns.tolist() == [5 * MS]
    assert done.end_ns.tolist() == [35 * MS]


def test_a_slow_bucket_delays_those_behind_it() -> None:
    """The transfers last from 10 to 34, from 34 to 36 and from 36 to 38."""
    assert replayed([[10, 20, 30]], [24, 2, 2]).uncovered_ns.tolist() == [8 * MS]


def test_buckets_are_launched_in_order() -> None:
    """GIVEN the gradient of bucket 0 last. THEN no other bucket is launched before it."""
    assert replayed([[30, 20, 10]], [5, 5, 5]).uncovered_ns.tolist() == [15 * MS]


def test_a_transfer_waits_for_the_last_rank() -> None:
    """GIVEN rank 1 that computes until 50. THEN rank 0 waits from 30 on."""
    assert replayed([[10, 20, 30], [10, 40, 50]], [5, 5, 5]).uncovered_ns.tolist() == [25 * MS, 5 * MS]


@pytest.mark.parametrize(("in_flight", "exposed"), [(1, 8), (2, 6)])
def test_two_in_flight_hide_a_latency(in_flight: int, exposed: float) -> None:
    """GIVEN buckets ready at 29, 29.5 and 30, with a latency of 1 and 2 ms of transfer each.

    THEN one after the other they end at 32, 35 and 38. With two at once the second transfers from 32 to 34. The third
    starts at 32, and transfers from 34 to 36.
    """
    done = replayed([[29, 29.5, 30]], [2, 2, 2], latency=1, in_flight=in_flight)
    assert done.uncovered_ns.tolist() == [exposed * MS]


def test_copies_back_hide_later_transfers() -> None:
    """GIVEN ends at 33, 36 and 39, and copies of 2 ms. THEN the copies from 33 and 36 cover 4 of 9 exposed ms."""
    done = replayed([[30, 30, 30]], [3, 3, 3], back=2)
    assert done.uncovered_ns.tolist() == [5 * MS]
    assert done.end_ns.tolist() == [41 * MS]


def test_a_gradient_that_never_comes_is_not_waited_for() -> None:
    done = replayed([[10, -np.inf, 30]], [5, 5], buckets=((0, 1), (2,)))
    assert done.uncovered_ns.tolist() == [5 * MS]


def test_a_bucket_without_gradients_is_launched_at_once() -> None:
    done = replayed([[-np.inf, 10, 30]], [5, 5, 5])
    assert done.uncovered_ns.tolist() == [5 * MS]


def test_delays_of_measured_transfers_delay_the_replayed_ones() -> None:
    assert replayed([[30]], [4], buckets=((0,),), late=2).uncovered_ns.tolist() == [6 * MS]
    assert replayed([[30]], [4], buckets=((0,),), late=-9).uncovered_ns.tolist() == [0]
