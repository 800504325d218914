"""Clocks that only messages relate are known as far as no receive ends before its send begins."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from tests.unit.job.clocks.planted import BEGIN_NS, Clock, PlantedRanks
from tracekit.job.clocks.align import align
from tracekit.model.run import ClockModel

MS = 1_000_000


def pipeline(
    clocks: Sequence[Clock],
    rng: np.random.Generator,
    *,
    stages: Sequence[Sequence[int]],
    length_ns: int,
    back_ns: tuple[int, int] | None = None,
    hosts: Sequence[str] = (),
    device: str = "cpu",
) -> PlantedRanks:
    """Return ranks of which neighbouring `stages` exchange messages every 5 ms, each 20 to 200 us long.

    back_ns: from when until when messages go back as well, since the beginning; at all times if None.
    """
    ranks = PlantedRanks(clocks, BEGIN_NS, BEGIN_NS + length_ns, hosts=hosts, device=device)
    for at_ns in range(BEGIN_NS + MS, BEGIN_NS + length_ns - MS, 5 * MS):
        for stage, following in pairwise(stages):
            for one, other in zip(stage, following, strict=True):
                back = back_ns is None or back_ns[0] <= at_ns - BEGIN_NS < back_ns[1]
                for i, (source, destination) in enumerate(((one, other), (other, one))[: 1 + back]):
                    sent_ns = at_ns + i * MS // 2
                    took_ns = int(rng.integers(20_000, 200_000))
                    ranks.message(source, destination, sent_ns=sent_ns, received_ns=sent_ns + took_ns)
    return ranks


def aligned(ranks: PlantedRanks) -> tuple[ClockModel, ...]:
    models, _ = align(ranks.summaries(), ranks.matched_groups(), ranks.matched_messages())
    return models


@pytest.mark.parametrize("seed", range(10))
def test_messages_in_both_directions_bound_the_clocks(seed: int) -> None:
    """GIVEN four ranks in a chain, clocks up to 10 s off that drift by up to 40 ppm THEN errors hold, 20 us a hop."""
    rng = np.random.default_rng(seed)
    clocks = [
        Clock(offset_ns=int(rng.integers(-(10**10), 10**10)), drift_ppm=float(rng.uniform(-20, 20))) for _ in range(4)
    ]
    ranks = pipeline(clocks, rng, stages=[[0], [1], [2], [3]], length_ns=1000 * MS)

    models = aligned(ranks)

    assert [model.method for model in models] == ["messages"] * 4
    assert models[0].error_ns == 0
    ends_ns = np.array([BEGIN_NS, BEGIN_NS + 1000 * MS])
    for hops, model in enumerate(models):
        assert model.error_ns is not None
        assert np.abs(ranks.off_ns(models, model.rank, ends_ns)).max() <= model.error_ns <= hops * 45_000


def test_a_drift_that_the_bounds_prove_is_fitted() -> None:
    """GIVEN 60 ppm over 10 s, which is 600 us, and messages of 20 us or more THEN it is known to 10 ppm."""
    ranks = pipeline([Clock(), Clock(drift_ppm=60)], np.random.default_rng(2), stages=[[0], [1]], length_ns=10_000 * MS)
    models = aligned(ranks)
    assert models[1].drift_ppm == pytest.approx(60, abs=10)


@pytest.mark.parametrize("short", [True, False])
def test_a_drift_that_the_bounds_do_not_prove_is_unknown(short: bool) -> None:
    clock = Clock(drift_ppm=60 if short else 0)
    length_ns = 100 * MS if short else 1000 * MS
    ranks = pipeline([Clock(), clock], np.random.default_rng(3), stages=[[0], [1]], length_ns=length_ns)
    assert aligned(ranks)[1].drift_ppm is None


def test_messages_in_one_direction_tell_no_clock() -> None:
    ranks = pipeline(
        [Clock(), Clock(offset_ns=5)], np.random.default_rng(4), stages=[[0], [1]], length_ns=100 * MS, back_ns=(0, 0)
    )
    assert [(model.method, model.error_ns) for model in aligned(ranks)] == [("none", None)] * 2


def test_kernels_of_single_messages_bound_clocks_by_their_ends() -> None:
    """GIVEN GPU kernels of one message, which end together THEN the error is the 5 us in which a kernel returns."""
    clocks = [Clock(), Clock(offset_ns=7_654_321)]
    ranks = pipeline(clocks, np.random.default_rng(6), stages=[[0], [1]], length_ns=100 * MS, device="gpu")
    model = aligned(ranks)[1]
    assert model.error_ns is not None
    assert abs(model.offset_ns - 7_654_321) <= model.error_ns < 5000 + 1000 + 5000  # the drift adds 100 ppm of 50 ms


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_wall_clocks_that_messages_allow_to_agree_are_one_clock(device: str) -> None:
    """GIVEN replies that come much later than the messages, which bound the clock on one side only closely."""
    ranks = PlantedRanks([Clock(), Clock()], BEGIN_NS, BEGIN_NS + 100 * MS, device=device)
    for at_ns in range(BEGIN_NS + MS, BEGIN_NS + 99 * MS, 10 * MS):
        ranks.message(0, 1, sent_ns=at_ns, received_ns=at_ns + 50_000)
        ranks.message(1, 0, sent_ns=at_ns + MS, received_ns=at_ns + 5 * MS)
    model = aligned(ranks)[1]
    assert (model.method, model.offset_ns) == ("wall", 0)
    assert model.error_ns is not None
    assert model.error_ns >= (4 * MS if device == "cpu" else 5_000)


@pytest.mark.parametrize("by_ns", [10 * MS, -700_000])
def test_a_clock_that_jumps_is_unknown(by_ns: int) -> None:
    clocks = [Clock(), Clock(jumps=((BEGIN_NS + 50 * MS, by_ns),))]
    ranks = pipeline(clocks, np.random.default_rng(5), stages=[[0], [1]], length_ns=100 * MS)
    assert [model.method for model in aligned(ranks)] == ["none"] * 2


def test_a_clock_that_jumps_again_and_again_is_unknown() -> None:
    jumps = tuple((BEGIN_NS + at * MS, (-1) ** at * 10 * MS) for at in range(10, 100, 7))
    ranks = pipeline([Clock(), Clock(jumps=jumps)], np.random.default_rng(5), stages=[[0], [1]], length_ns=100 * MS)
    assert [model.method for model in aligned(ranks)] == ["none"] * 2
