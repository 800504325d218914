"""Which all-gathers bring back parameters that were freed after the forward pass."""

from __future__ import annotations

from pathlib import Path

from tests.builders import TraceBuilder
from tests.unit.explain.summarized import summary_of
from tracekit.explain.fsdp.tables import FSDP_REGATHERS


def launches_us(folder: Path, trace: TraceBuilder) -> list[int]:
    summary = summary_of(trace, folder)
    return [round((ns - trace.wall_ns(0)) / 1000) for ns in summary[FSDP_REGATHERS].launch_ns.tolist()]


def test_gathers_of_the_backward_pass_count_and_others_do_not(tmp_path: Path) -> None:
    """GIVEN a gather in forward at 10, one in backward at 60, and a gather of something else in backward at 75."""
    trace = TraceBuilder().step(0, 0, 200)
    trace.label("FSDP::all_gather (blocks.0)", 8, 12).gloo("all_gather", 11, 5, issued_at=10)
    trace.label("tracekit.backward", 50, 60)
    trace.label("FSDP::all_gather (blocks.0)", 58, 12).gloo("all_gather", 61, 5, issued_at=60)
    trace.gloo("all_gather", 76, 5, issued_at=75)
    assert launches_us(tmp_path, trace) == [60]


def test_without_fsdp_nothing_is_gathered_again(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 200).label("tracekit.backward", 50, 60)
    assert launches_us(tmp_path, trace.gloo("all_gather", 61, 5, issued_at=60)) == []
