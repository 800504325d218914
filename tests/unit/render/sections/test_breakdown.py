"""The tables of idle time: its causes by rank, and what hosts did then."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.exchanges import rank, run_of
from tests.unit.render.sections.drawn import lines_of
from tracekit.explain.step_time.breakdown import breakdown
from tracekit.explain.step_time.tables import IdleSum

MS = 1_000_000


def table_lines(*idle: IdleSum) -> list[str]:
    """Return the lines of a rank with one step of 100 ms that idles for 60 ms."""
    summary = rank(0, steps=(1,), idle=idle)
    steps = tuple(replace(s, step_ns=100 * MS, compute_ns=40 * MS, idle_ns=60 * MS) for s in summary.steps)
    run = run_of([replace(summary, steps=steps)])
    return lines_of("breakdown", breakdown(run), run)


def test_the_causes_of_a_rank_and_the_rest_sum_to_its_idle_time() -> None:
    causes = ("host_bound", "kernel_gap", "synchronisation", "data", "allocator", "garbage_collection", "other")
    lengths = (25, 15, 8, 5, 4, 2, 1)
    lines = table_lines(*(IdleSum(cause=c, total_ns=ms * MS) for c, ms in zip(causes, lengths, strict=True)))
    (row,) = (line.split() for line in lines[-3:] if line.split()[0] == "0")
    assert [float(cell) for cell in row] == [0, 60, 25, 15, 8, 5, 4, 3]
