"""Ranks agree whose clocks differ by an offset and a drift at most."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.analysis.clocks.planted import BEGIN_NS, Clock, PlantedRanks
from tracekit.analysis.clocks.agreement import agreeing
from tracekit.analysis.clocks.moments import Moments
from tracekit.model.events import ABSENT

MS = 1_000_000
JUMP_NS = 500_000


def moments_of(clocks: list[Clock], *, count: int, late_ns: np.ndarray | None = None, uneven: bool = False) -> Moments:
    """Return `count` collectives of all ranks, 10 ms apart. Ends spread by 2 us, and are `late_ns` besides."""
    rng = np.random.default_rng(4)
    planted = PlantedRanks(clocks, BEGIN_NS, BEGIN_NS + count * 10 * MS)
    spread_ns = rng.normal(0, 2000, (len(clocks), count)).astype(np.int64)
    planted.collectives(
        range(len(clocks)),
        kind="all_to_all" if uneven else "all_reduce",
        end_ns=BEGIN_NS + np.arange(1, count + 1) * 10 * MS,
        late_ns=spread_ns if late_ns is None else spread_ns + late_ns,
        size_bytes=np.arange(len(clocks))[:, None] if uneven else 64,
    )
    moments = Moments.of(planted.summaries(), planted.matched_groups()[0])
    assert moments is not None
    return moments


def jumps_after(moments: int) -> Clock:
    return Clock(offset_ns=-4 * MS, jumps=((BEGIN_NS + round((moments + 0.5) * 10 * MS), JUMP_NS),))


@pytest.mark.parametrize("count", [3, 8, 200])
def test_offset_and_drift_are_agreement(count: int) -> None:
    clocks = [Clock(), Clock(offset_ns=10**10, drift_ppm=45), Clock(drift_ppm=-45)]
    assert agreeing(moments_of(clocks, count=count)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("count", "after"), [(4, 2), (5, 1), (60, 4), (60, 30)])
def test_those_that_jump_together_agree(count: int, after: int) -> None:
    clocks = [Clock(), jumps_after(after), Clock(drift_ppm=20), jumps_after(after)]
    assert agreeing(moments_of(clocks, count=count)).tolist() == [0, 1, 0, 1]


def test_single_late_moments_do_not_count() -> None:
    late_ns = np.zeros((3, 160), dtype=np.int64)
    late_ns[1, [20, 90, 140]] = 300_000
    assert agreeing(moments_of([Clock()] * 3, count=160, late_ns=late_ns)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("count", "uneven"), [(2, False), (10, True)])
def test_few_or_uneven_moments_tell_nothing(count: int, uneven: bool) -> None:
    assert agreeing(moments_of([Clock()] * 3, count=count, uneven=uneven)).tolist() == [0, 1, 2]


def test_a_rank_without_a_part_of_the_moments_agrees_with_none() -> None:
    moments = moments_of([Clock()] * 3, count=160)
    moments.there[1, 100:] = False
    moments.end_ns[1, 100:] = ABSENT
    assert agreeing(moments).tolist() == [0, 1, 0]
