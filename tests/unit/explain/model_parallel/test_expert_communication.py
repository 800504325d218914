"""Dispatches and combines of several ranks. Times are microseconds."""

from __future__ import annotations

from pathlib import Path

from tests.builders import TraceBuilder, write_run
from tracekit.model.table import records
from tracekit.render.terminal import terminal_text
from tracekit.report.report import analyze


def a_rank(rank: int, combine_us: int) -> TraceBuilder:
    """Two steps, each with a dispatch of 20 of which 10 are hidden, and a combine that nothing hides."""
    trace = TraceBuilder(rank)
    for step in range(2):
        at = 200 * step
        trace.step(step, at, 200).kernel("my_mlp", at + 40, 30, launched_at=at + 1)
        trace.kernel("void dpsk::ep::internode::dispatch<8>(int4*)", at + 30, 20, stream=27, launched_at=at + 2)
        trace.kernel("void dpsk::ep::internode::combine<8>(int4*)", at + 90, combine_us, stream=27, launched_at=at + 3)
    return trace


def test_sums_of_ranks_and_means_over_them(tmp_path: Path) -> None:
    report = analyze(write_run(tmp_path, [a_rank(0, 40), a_rank(1, 60)]))
    found = report.tensor.expert_communication
    rows = {(row["rank"], row["direction"]): row for row in records(found.ranks)}
    times = {key: (row["count"], row["total_ns"], row["overlapped_ns"], row["exposed_ns"]) for key, row in rows.items()}
    assert times == {
        (0, "dispatch"): (2, 40_000, 20_000, 20_000),
        (1, "dispatch"): (2, 40_000, 20_000, 20_000),
        (0, "combine"): (2, 80_000, 0, 80_000),
        (1, "combine"): (2, 120_000, 0, 120_000),
    }
    dispatch, combine = records(found.means)
    assert (dispatch["direction"], dispatch["phase"], dispatch["microbatch"]) == ("dispatch", None, None)
    assert (dispatch["ranks"], dispatch["count"], dispatch["total_ns"], dispatch["overlapped_ns"]) == (
        2,
        1,
        20_000,
        10_000,
    )
    assert (combine["total_ns"], combine["exposed_ns"], combine["worst_rank"], combine["worst_exposed_ns"]) == (
        50_000,
        50_000,
        1,
        60_000,
    )
    assert dispatch["size_bytes"] is None


def test_a_run_without_expert_parallelism_has_no_table(tmp_path: Path) -> None:
    report = analyze(write_run(tmp_path, [TraceBuilder().step(0, 0, 100).kernel("my_mlp", 10, 20, launched_at=1)]))
    assert records(report.tensor.expert_communication.ranks) == []
    assert "Tokens to experts" not in terminal_text(report)


def test_the_table_is_at_most_80_columns_wide(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.step(0, 0, 4000)
    for microbatch in range(20):
        at = 100 * microbatch
        trace.label(f"PP:0F{microbatch}", at, 90)
        for name in ("dispatch", "combine"):
            trace.kernel(f"void deep_ep::intranode::{name}<8>(int4*)", at + 10, 40, stream=27, launched_at=at + 5)
    report = analyze(write_run(tmp_path, [trace]))
    text = terminal_text(report, width=80, extent="sections")
    assert max(map(len, text.splitlines())) <= 80
    assert "16 of 40 rows" in " ".join(text.split())
