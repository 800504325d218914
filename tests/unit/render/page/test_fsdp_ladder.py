"""FSDP's gathers in the order of use, on simulated jobs."""

from __future__ import annotations

from pathlib import Path

from benchmarks.gpu_jobs import JobSpec, simulate
from benchmarks.gpu_jobs.strategies.fsdp import Unit, train_units
from tests.builders import TraceBuilder, write_run
from tracekit.api import Report, analyze
from tracekit.render.page.chart_contract import FsdpLadder
from tracekit.render.page.charts import fsdp_ladder


def report_of(ahead: int) -> Report:
    """Return the report on two ranks whose six blocks take 500 us to compute and 300 us to gather."""
    units = [Unit(name=f"blocks.{i}", size_bytes=8 << 20, gather_us=300, forward_us=500) for i in range(6)]
    job = simulate(
        JobSpec(family="fsdp", dp=2, steps=3),
        lambda rank: train_units(rank, units, forward_ahead=ahead, backward_ahead=ahead, waits=True),
    )
    return job.report()


def ladder_of(ahead: int) -> FsdpLadder:
    ladder = fsdp_ladder(report_of(ahead))
    assert ladder is not None
    return ladder


def test_gathers_stand_in_the_order_in_which_modules_are_used() -> None:
    ladder = ladder_of(ahead=1)
    blocks = [f"blocks.{i}" for i in range(6)]

    assert ladder["module"][:6] == blocks
    assert ladder["phase"][:6] == ["forward"] * 6
    assert ladder["compute_before_ns"][0] is None


def test_a_gather_that_is_issued_ahead_is_waited_for_less() -> None:
    late, early = ladder_of(ahead=0), ladder_of(ahead=1)

    assert set(late["ahead"]) == {0}
    assert max(early["ahead"]) == 1
    assert sum(early["wait_ns"]) < 0.5 * sum(late["wait_ns"])


def test_on_a_cpu_a_gather_that_blocks_is_waited_for_all_the_time(tmp_path: Path) -> None:
    """GIVEN two modules that are gathered when they are used and computed for 60 us, on ranks with Gloo."""
    traces = []
    for rank in range(2):
        trace = TraceBuilder(rank).step(0, 0, 300).label("tracekit.forward", 5, 290)
        for at, module in ((10, "blocks.0"), (150, "blocks.1")):
            trace.label(f"FSDP::all_gather ({module})", at, 60).gloo("all_gather", at + 2, 50)
            trace.label(f"FSDP::all_gather_copy_out ({module})", at + 61, 5).op("aten::mm", at + 70, 60)
        traces.append(trace)

    ladder = fsdp_ladder(analyze(write_run(tmp_path, traces)))

    assert ladder is not None
    assert ladder["module"] == ["blocks.0", "blocks.1"]
    assert ladder["ahead"] == [0, 0]
    assert ladder["transfer_ns"] == ladder["wait_ns"] == [50_000, 50_000]
    assert ladder["compute_before_ns"] == [None, 60_000]


def test_a_run_without_fsdp_has_none() -> None:
    ddp = simulate(JobSpec(family="ddp", dp=2, steps=3)).report()

    assert fsdp_ladder(ddp) is None
