"""Clocks of ranks against the lowest rank that is present."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.loading.load import load
from tracekit.model.run import ClockModel
from tracekit.render.json_result import result_dict
from tracekit.report.report import analyze

Samples = list[tuple[float, int, int]]  # at us, offset ns, error ns


def clocks(folder: Path, *samples: Samples | None, first_rank: int = 0) -> tuple[ClockModel, ...]:
    ranks = []
    for rank, measured in enumerate(samples, start=first_rank):
        trace = TraceBuilder(rank, 8).step(0, 0, 10).op("op", 0, 5)
        ranks.append(trace if measured is None else trace.capture(clock=measured))
    return load(write_run(folder, ranks)).clocks


def test_offsets_are_relative_to_the_lowest_rank_present(tmp_path: Path) -> None:
    """GIVEN measurements against rank 0, which is missing THEN rank 2 is the reference, and errors add up.

    Each clock may drift by 100 ppm in the 10 us of the recording, which is 1 ns.
    """
    actual = clocks(tmp_path, [(0, 500, 10)], [(0, 800, 20)], first_rank=2)
    assert [(clock.rank, clock.method, clock.offset_ns, clock.error_ns) for clock in actual] == [
        (2, "probe", 0, 0),
        (3, "probe", 300, 30 + 2),
    ]


def test_the_sample_of_least_error_is_used(tmp_path: Path) -> None:
    """Its error grows by up to 100 ppm in the 100 us to the beginning of the recording, which is 10 ns."""
    actual = clocks(tmp_path, [(0, 0, 0)], [(0, 900, 90), (100, 700, 7), (200, 800, 80)])
    assert (actual[1].offset_ns, actual[1].error_ns, actual[1].drift_ppm) == (700, 7 + 10, None)


def test_a_change_below_the_errors_counts_as_error(tmp_path: Path) -> None:
    """GIVEN 100 us more after 2 s, to 60 us each THEN no drift, and at the end the offset may be 160 us off."""
    still: Samples = [(0, 0, 0), (2_000_000, 0, 0)]
    actual = clocks(tmp_path, still, [(0, 1000, 60_000), (2_000_000, 101_000, 60_000)])
    assert (actual[1].offset_ns, actual[1].drift_ppm, actual[1].error_ns) == (1000, 0.0, 160_000)


def test_drift_between_the_ends_of_a_window(tmp_path: Path) -> None:
    """100 us more after 2 s is a drift of 50 ppm. A change below the errors is none."""
    drifting: Samples = [(0, 1000, 10), (2_000_000, 101_000, 10)]
    noisy: Samples = [(0, 1000, 60_000), (2_000_000, 101_000, 60_000)]
    still: Samples = [(0, 0, 0), (2_000_000, 0, 0)]
    actual = clocks(tmp_path, still, drifting, noisy)
    assert [clock.drift_ppm for clock in actual] == [0.0, pytest.approx(50), 0.0]
    wall_ns = TraceBuilder().wall_ns
    on_run = actual[1].to_run(np.array([wall_ns(0), wall_ns(2_000_000)]))
    assert on_run.tolist() == [wall_ns(0) - 1000, wall_ns(2_000_000) - 101_000]


def test_a_clock_that_was_set_between_two_measurements_does_not_drift(tmp_path: Path) -> None:
    """GIVEN 500 ms more after 2 s THEN that is no drift of 250,000 ppm, and the offset may be off by all of it."""
    still: Samples = [(0, 0, 0), (2_000_000, 0, 0)]
    actual = clocks(tmp_path, still, [(0, 1000, 10), (2_000_000, 500_001_000, 20)])
    assert (actual[1].offset_ns, actual[1].drift_ppm, actual[1].error_ns) == (1000, 0.0, 500_000_020)


def test_without_measurements_clocks_are_used_unchanged(tmp_path: Path) -> None:
    """GIVEN ranks of one host THEN they have one clock."""
    for name, measured in (("a", None), ("b", [])):
        models = clocks(tmp_path / name, measured, measured)
        assert [(model.method, model.offset_ns) for model in models] == [("host", 0), ("host", 0)]
    one_measured = clocks(tmp_path / "c", [(0, 100, 1)], [])
    assert [(clock.method, clock.offset_ns) for clock in one_measured] == [("probe", 0)] * 2


# ---- fitted on the ends of collectives ------------------------------------------------------------------------------


def write_job(
    folder: Path,
    *,
    ranks: int = 4,
    ahead_us: dict[int, float] | None = None,
    drift_ppm: dict[int, float] | None = None,
    step_us: dict[int, tuple[float, float]] | None = None,
    hosts: bool = True,
    steps: int = 10,
    every_us: int = 1000,
    spread_us: float = 2,
    number: dict[int, int] | None = None,
    measured: dict[int, int] | None = None,
) -> Path:
    """Write a job with four all-reduces per step, each of which takes 100 us after its last rank's arrival.

    Clocks of ranks are ahead, drift, or jump (`step_us`: when, and by how much). With `hosts` each rank has its own
    host. `number` says which rank a rank claims to be.
    """
    rng = np.random.default_rng(3)
    number = number or {}
    traces = []
    for rank in range(ranks):
        shown_rank = number.get(rank, rank)
        traces.append(TraceBuilder(shown_rank, ranks, host=f"node{shown_rank}" if hosts else "node0"))

    def on_clock(rank: int, at_us: float) -> float:
        step_at_us, by_us = (step_us or {}).get(rank, (np.inf, 0))
        ahead = (ahead_us or {}).get(rank, 0) + (by_us if at_us >= step_at_us else 0)
        return round(float(at_us * (1 + (drift_ppm or {}).get(rank, 0) * 1e-6) + ahead), 3)

    for step in range(steps):
        begin = step * 5 * every_us
        for rank, trace in enumerate(traces):
            trace.step(step, on_clock(rank, begin), 5 * every_us - 10)
        for k in range(4):
            arrivals = begin + (k + 0.1) * every_us + rng.uniform(0, every_us / 2, ranks)
            ends = arrivals.max() + 100 + rng.uniform(-spread_us, spread_us, ranks)
            for rank, trace in enumerate(traces):
                start = on_clock(rank, arrivals[rank])
                took = round(on_clock(rank, ends[rank]) - start, 3)
                trace.kernel("gemm", start - 9, 5, launched_at=start - 9)
                trace.nccl("all_reduce", start, took, launched_at=start - 8, elements=1000 + k, Seq=4 * step + k)
    for rank, trace in enumerate(traces):
        if measured is not None:
            trace.capture(clock=[(on_clock(rank, 0), measured.get(rank, 0), 500)])
    return write_run(folder, traces)


def collectives_of(folder: Path, **options: Any) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], result_dict(analyze(load(folder, **options), only="collectives"))["collectives"])


def test_offsets_are_recovered_from_the_ends_of_collectives(tmp_path: Path) -> None:
    ahead_us = {0: -4_000_000, 2: 7_000_000.5, 3: -250}
    models = load(write_job(tmp_path, ahead_us=ahead_us)).clocks
    assert [model.method for model in models] == ["collectives"] * 4
    for rank, model in enumerate(models):
        truth_ns = (ahead_us.get(rank, 0) - ahead_us[0]) * 1000
        assert model.offset_ns == pytest.approx(truth_ns, abs=2000)
        assert model.error_ns is not None
        assert abs(model.offset_ns - truth_ns) <= model.error_ns <= 6000


def test_a_shifted_clock_changes_no_number_over_ranks(tmp_path: Path) -> None:
    plain = collectives_of(write_job(tmp_path / "plain", ahead_us={1: 1_000}))
    assert plain[0]["skew_max_ns"] > 100_000
    for i, ahead_us in enumerate(({0: 500}, {1: 10_000_000}, {0: -10_000_000, 2: 3, 3: 9_999_999.999})):
        assert collectives_of(write_job(tmp_path / str(i), ahead_us=ahead_us)) == plain


def test_the_numbers_of_ranks_do_not_matter(tmp_path: Path) -> None:
    plain = collectives_of(write_job(tmp_path / "plain", ahead_us={1: 500}))
    renamed = collectives_of(write_job(tmp_path / "renamed", ahead_us={1: 500}, number={0: 3, 1: 0, 2: 1, 3: 2}))
    assert renamed == plain


def test_neither_the_order_of_files_nor_workers_matter(tmp_path: Path) -> None:
    folder = write_job(tmp_path / "one", ahead_us={1: 500})
    plain = collectives_of(folder)
    for rank in range(4):
        (tmp_path / "other").mkdir(exist_ok=True)
        (folder / f"rank{rank}.json.gz").rename(tmp_path / "other" / f"{'dbca'[rank]}.json.gz")
    assert collectives_of(tmp_path / "other") == plain
    assert collectives_of(tmp_path / "other", jobs=2) == plain


@pytest.mark.parametrize(("rank", "by_us"), [(0, 5_000_000), (2, 3_000)])
def test_a_rank_whose_clock_jumps_has_no_times(tmp_path: Path, rank: int, by_us: int) -> None:
    """GIVEN a jump in the middle of 10 steps THEN the rank is excluded, the others keep all steps; a note says so."""
    run = load(write_job(tmp_path, step_us={rank: (25_000, by_us)}))
    assert [summary.rank for summary in run.ranks if not summary.is_measured] == [rank]
    assert run.common_steps() == set(range(10))
    assert [note.rank for note in run.notes if note.id == "clock-step"] == [rank]


@pytest.mark.parametrize(("host", "method"), [("localhost", "none"), ("node0", "host")])
def test_a_name_that_any_machine_has_shows_no_host(tmp_path: Path, host: str, method: str) -> None:
    """GIVEN two ranks without common collectives THEN "localhost" may be two machines, and "node0" is one."""
    traces = [TraceBuilder(rank, 2, host=host).step(0, 0, 10).op("op", 0, 5) for rank in range(2)]
    assert [clock.method for clock in load(write_run(tmp_path, traces)).clocks] == [method] * 2


def test_ranks_of_a_host_share_a_clock_unless_collectives_contradict(tmp_path: Path) -> None:
    one_clock = load(write_job(tmp_path / "same", hosts=False)).clocks
    assert [model.offset_ns for model in one_clock] == [0, 0, 0, 0]
    assert all((model.error_ns or 0) < 4000 for model in one_clock)
    run = load(write_job(tmp_path / "other", hosts=False, ahead_us={3: 2000}))
    assert run.clocks[3].offset_ns == pytest.approx(2_000_000, abs=4000)
    assert [note.rank for note in run.notes if note.id == "clock-step"] == [3]


@pytest.mark.parametrize("measured", [pytest.param([(0, 0, 0)], id="measured"), pytest.param([], id="too short")])
def test_cpu_ranks_of_one_boot_share_a_clock_in_a_job_of_one_step(tmp_path: Path, measured: Any) -> None:
    """GIVEN a single step of four reductions, which rank 1 leaves 5 ms late each time, as its record says."""
    traces = [TraceBuilder(rank, 2).step(0, 0, 100_000) for rank in range(2)]
    for begin in range(10_000, 90_000, 20_000):
        for rank, trace in enumerate(traces):
            trace.op("aten::mm", begin - 2_000, 1_000).gloo("all_reduce", begin, 100 + 5_000 * rank)
    run = load(write_run(tmp_path, [trace.capture(clock=measured) for trace in traces]))
    assert {(model.method, model.offset_ns) for model in run.clocks} == {("probe" if measured else "host", 0)}
    assert run.notes == ()


def test_measured_clocks_hold_unless_collectives_contradict(tmp_path: Path) -> None:
    """A sample is off by 0.5 us, and both clocks may drift by 100 ppm in the 50 ms of the recording."""
    agreeing = load(write_job(tmp_path / "right", ahead_us={1: 300}, measured={1: 300_400})).clocks
    assert [(model.method, model.offset_ns) for model in agreeing[:2]] == [("probe", 0), ("probe", 300_400)]
    assert agreeing[1].error_ns == pytest.approx(2 * (500 + 5000), abs=20)
    run = load(write_job(tmp_path / "wrong", ahead_us={1: 9000}, measured={1: 300_400}))
    assert (run.clocks[1].method, run.clocks[2].method) == ("collectives", "probe")
    assert run.clocks[1].offset_ns == pytest.approx(9_000_000, abs=4000)
    assert [note.rank for note in run.notes if note.id == "clock-step"] == [1]


def test_a_rank_is_aligned_through_the_groups_of_others(tmp_path: Path) -> None:
    """GIVEN pairs (0, 1), (1, 2), (2, 3) THEN the clock of 3 is known through 1 and 2."""
    traces = [TraceBuilder(rank, 4, host=f"node{rank}") for rank in range(4)]
    for rank, trace in enumerate(traces):
        trace.step(0, 1000 * rank, 900).kernel("gemm", 1000 * rank, 5, launched_at=1000 * rank)
    for place, pair in enumerate(((0, 1), (1, 2), (2, 3))):
        for i in range(3):
            at = 100 + 100 * place + 30 * i
            for rank in pair:
                traces[rank].nccl(
                    "all_reduce", 1000 * rank + at, 10, launched_at=1000 * rank + at - 1, group=pair, description="tp"
                )
    assert [model.offset_ns for model in load(write_run(tmp_path, traces)).clocks] == [0, 10**6, 2 * 10**6, 3 * 10**6]
