"""FSDP collectives by module, with known times in microseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.unit.explain.summarized import summary_of
from tracekit.explain.fsdp.tables import FSDP_UNITS, FsdpSum
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
