"""FSDP collectives by module, with known times in microseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.gpu_jobs import JobSpec, simulate
from benchmarks.gpu_jobs.strategies.fsdp import Unit, train_units
from tests.builders import TraceBuilder
from tests.unit.analysis.summarized import summary_of
from tracekit.analysis.fsdp.parts import FSDP_UNITS, FsdpSum
from tracekit.analysis.table import records
from tracekit.model.spans import fsdp_span

Sums = Callable[[TraceBuilder], dict[tuple[str | None, str], FsdpSum]]


@pytest.fixture
def sums(tmp_path: Path) -> Sums:
    def run(trace: TraceBuilder) -> dict[tuple[str | None, str], FsdpSum]:
        return {(row.module, row.kind): row for row in summary_of(trace, tmp_path)[FSDP_UNITS]}

    return run


def test_an_all_gather_is_for_the_module_it_gathers_not_for_the_one_that_asks(sums: Sums) -> None:
    """GIVEN blocks.0, which asks for blocks.1 at 20. blocks.1 is used at 70."""
    trace = TraceBuilder().step(0, 0, 200).label("FSDP::pre_forward (blocks.0)", 10, 30)
    trace.label("FSDP::forward_prefetch for blocks.1", 15, 20).label("FSDP::all_gather (blocks.1)", 18, 10)
    trace.gloo("all_gather", 22, 30, issued_at=20).label("FSDP::all_gather_copy_out (blocks.1)", 70, 5)
    rows = sums(trace)
    assert set(rows) == {("blocks.1", "all_gather")}
    row = rows["blocks.1", "all_gather"]
    assert (row.count, row.exposed_ns, row.ahead_count, row.ahead_ns) == (1, 30_000, 1, 50_000)


def test_when_a_module_is_needed_is_unknown_if_it_is_gathered_again_before(sums: Sums) -> None:
    trace = TraceBuilder().step(0, 0, 200)
    for at in (10, 50):
        trace.label("FSDP::all_gather", at, 10).gloo("all_gather", at + 2, 5, issued_at=at + 1)
    trace.label("FSDP::all_gather_copy_out", 90, 5)
    row = sums(trace)["", "all_gather"]
    assert (row.count, row.ahead_count, row.ahead_ns) == (2, 1, 39_000)


def test_fsdp1_modules_are_named_by_the_capture_s_spans(sums: Sums) -> None:
    """An unshard on demand is needed when it ends, a prefetch when its module is used."""
    trace = TraceBuilder().step(0, 0, 300)
    trace.label(fsdp_span("use", "forward", ""), 8, 40).label(fsdp_span("unshard", "forward", ""), 10, 20)
    trace.gloo("all_gather", 12, 10, issued_at=11)
    trace.label(fsdp_span("prefetch", "forward", "blocks.0"), 32, 14).gloo("all_gather", 34, 10, issued_at=33)
    trace.label(fsdp_span("use", "forward", "blocks.0"), 100, 10)
    trace.label(fsdp_span("reduce", "backward", "blocks.0"), 150, 30)
    trace.gloo("reduce_scatter", 155, 20, issued_at=152)
    rows = sums(trace)
    assert {key: (row.exposed_ns, row.ahead_ns) for key, row in rows.items()} == {
        ("", "all_gather"): (10_000, 19_000),
        ("blocks.0", "all_gather"): (10_000, 67_000),
        ("blocks.0", "reduce_scatter"): (20_000, 0),
    }


def test_shared_time_is_charged_to_the_last_to_end(sums: Sums) -> None:
    """
    blocks.0   10-50
    blocks.1     30-70    compute 60-65
    """
    trace = TraceBuilder().step(0, 0, 200).op("aten::mm", 60, 5)
    trace.label("FSDP::all_gather (blocks.0)", 5, 3).gloo("all_gather", 10, 40, issued_at=6)
    trace.label("FSDP::all_gather (blocks.1)", 25, 3).gloo("all_gather", 30, 40, issued_at=26, runloop=1)
    rows = sums(trace)
    assert rows["blocks.0", "all_gather"].exposed_ns == 20_000
    assert rows["blocks.1", "all_gather"].exposed_ns == 35_000


def test_other_collectives_in_the_group_of_fsdp_have_a_row_without_a_module(sums: Sums) -> None:
    trace = TraceBuilder().step(0, 0, 200).label("FSDP::post_backward_reduce (blocks.0) [pg=2]", 5, 20)
    trace.gloo("reduce_scatter", 10, 10, issued_at=6).gloo("all_reduce", 100, 7, issued_at=99)
    records = [trace.record("all_reduce", seq, created_at=at) for seq, at in ((1, 6.5), (2, 99.5))]
    trace.capture(collectives=records)
    rows = sums(trace)
    assert set(rows) == {("blocks.0", "reduce_scatter"), (None, "all_reduce")}
    assert rows[None, "all_reduce"].exposed_ns == 7_000


@pytest.mark.parametrize("waits", [True, False])
def test_on_gpus_exposed_time_of_the_modules_adds_up_to_that_of_the_kind(waits: bool) -> None:
    """GIVEN gathers and reductions partly under compute, of one communicator."""
    units = [Unit(name=f"blocks.{i}", size_bytes=8 << 20, gather_us=700, forward_us=400) for i in range(4)]
    report = simulate(
        JobSpec(family="fsdp", dp=2, steps=3),
        lambda rank: train_units(rank, units, forward_ahead=1, backward_ahead=1, waits=waits),
    ).report()
    assert report.fsdp is not None
    assert report.overlap is not None
    for rank in range(2):
        for kind in ("all_gather", "reduce_scatter"):
            of_modules, of_kind = (
                [row for row in records(table) if (row["rank"], row["kind"]) == (rank, kind)]
                for table in (report.fsdp.units, report.overlap.communication)
            )
            assert {row["module"] for row in of_modules} == {unit.name for unit in units}
            assert {row["shard_bytes"] for row in of_modules} == {4 << 20}
            exposed_ns = sum(row["exposed_ns"] for row in of_kind)
            assert sum(row["exposed_ns"] for row in of_modules) == exposed_ns
            assert 0 < exposed_ns < sum(row["total_ns"] for row in of_kind)
