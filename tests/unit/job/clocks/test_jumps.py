"""A rank whose clock jumps within the recording is found; drift, late samples and turns on a shared device are none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.job.clocks.planted import BEGIN_NS, Clock, PlantedRanks
from tracekit.job.clocks.align import align
from tracekit.job.clocks.jumps import odd_rates
from tracekit.model.events import Int64
from tracekit.model.run import ClockModel

MS = 1_000_000


def models_of(
    clocks: Sequence[Clock], late_ns: Int64, *, hosts: Sequence[str] = (), took_ns: int | Int64 = 200_000
) -> tuple[ClockModel, ...]:
    """Return the models of ranks that leave one collective every 5 ms, `late_ns`, int64 [ranks, collectives]."""
    count = late_ns.shape[1]
    ranks = PlantedRanks(clocks, BEGIN_NS, BEGIN_NS + 5 * MS * (count + 1), hosts=hosts)
    ends_ns = BEGIN_NS + np.arange(1, count + 1) * 5 * MS
    ranks.collectives(range(len(clocks)), end_ns=ends_ns, late_ns=late_ns, took_ns=took_ns)
    models, _ = align(ranks.summaries(), ranks.matched_groups())
    return models


def noise(ranks: int, count: int, seed: int) -> Int64:
    rng = np.random.default_rng(seed)
    late_ns = rng.normal(0, 2000, (ranks, count)) + (rng.random((ranks, count)) < 0.03) * rng.uniform(0, 5e5)
    return late_ns.astype(np.int64)


@pytest.mark.parametrize("by_ns", [-700_000, 150_000, 5_000 * MS])
@pytest.mark.parametrize("jumping", [0, 2])
@pytest.mark.parametrize("count", [16, 200])
def test_the_rank_whose_clock_jumps_is_known_among_four(by_ns: int, jumping: int, count: int) -> None:
    """GIVEN four ranks that drift by up to 20 ppm, one of which jumps in the middle."""
    jump = (BEGIN_NS + 5 * MS * count // 2 + MS, by_ns)
    clocks = [Clock(offset_ns=rank * MS, drift_ppm=5 * rank, jumps=(jump,) * (rank == jumping)) for rank in range(4)]
    models = models_of(clocks, noise(4, count, 1))
    assert [model.rank for model in models if model.jump_ns is not None] == [jumping]
    assert models[jumping].jump_ns == pytest.approx(by_ns, abs=50_000)


def test_of_two_clocks_nothing_tells_which_jumps() -> None:
    clocks = [Clock(), Clock(jumps=((BEGIN_NS + 100 * MS, 2 * MS),))]
    assert [model.method for model in models_of(clocks, noise(2, 40, 2))] == ["none", "none"]


@pytest.mark.parametrize("count", [7, 60, 300])
def test_neither_drift_nor_late_samples_are_jumps(count: int) -> None:
    for seed in range(20):
        clocks = [Clock(drift_ppm=45 * (-1) ** rank) for rank in range(3)]
        models = models_of(clocks, noise(3, count, seed))
        assert all(model.jump_ns is None and model.method != "none" for model in models)


def test_ranks_that_share_a_device_leave_by_turns() -> None:
    """GIVEN a rank that leaves 4 ms later than the other, and from the middle on 4 ms earlier: by turns they have the
    device, and transfers take 5 ms THEN on one host that is no jump, and they have one clock."""
    late_ns = noise(2, 60, 3)
    late_ns[0, 30:] += 4 * MS
    late_ns[1, :30] += 4 * MS
    models = models_of([Clock(), Clock()], late_ns, hosts=["one", "one"], took_ns=5 * MS)
    assert [(model.method, model.offset_ns, model.jump_ns) for model in models] == [("host", 0, None)] * 2
    assert max(model.error_ns or 0 for model in models) <= 10_000


def test_a_rank_that_leaves_late_on_a_busy_host_has_the_clock_of_its_host() -> None:
    """GIVEN two ranks of one host, of which one enters the only barrier 6 ms after the other left it, by its record."""
    took_ns = np.array([[-5 * MS], [30_000]])  # before the other left it
    models = models_of([Clock()] * 2, np.array([[6 * MS], [0]]), hosts=["one", "one"], took_ns=took_ns)
    assert [(model.method, model.jump_ns) for model in models] == [("host", None)] * 2


def test_the_clock_of_a_host_jumps_for_all_of_its_ranks() -> None:
    jumps = ((BEGIN_NS + 150 * MS, 2 * MS),)
    late_ns = noise(8, 60, 6)
    late_ns[1, 30:] += 3 * MS  # one rank alone of host a
    clocks = [*[Clock()] * 6, *[Clock(jumps=jumps)] * 2]
    models = models_of(clocks, late_ns, hosts=["a", "a", "b", "b", "c", "c", "d", "d"])
    assert [model.rank for model in models if model.jump_ns is not None] == [6, 7]


def test_exchanges_that_a_rank_leaves_early_each_time_are_no_jump() -> None:
    """GIVEN a rank that leaves every other collective 150 us before the others."""
    late_ns = noise(4, 12, 5)
    late_ns[2, 1::2] -= 150_000
    assert all(model.jump_ns is None for model in models_of([Clock()] * 4, late_ns))


def test_a_clock_of_another_rate_is_found_if_most_agree() -> None:
    clocks = [Clock(), Clock(), Clock(drift_ppm=50_000), Clock()]
    assert odd_rates(models_of(clocks, noise(4, 60, 4))) == {2: pytest.approx(1.05, rel=1e-3)}
    assert [model.method for model in models_of(clocks[1:3], noise(2, 60, 4))] == ["none", "none"]
