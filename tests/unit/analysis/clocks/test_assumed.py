"""Whether collectives contradict that ranks of a host share a clock. `test_align.py` has measured clocks."""

from __future__ import annotations

from pathlib import Path

from tests.builders import TraceBuilder, write_run
from tracekit.analysis.load import load


def busy_ranks(*, jumps_us: float = 0) -> list[TraceBuilder]:
    """Two ranks of a host, whose reductions take 5 ms. Another process slows rank 1 down in steps 3 to 6: it leaves
    4 ms late. From step 5 on its clock is ahead by `jumps_us`.
    """
    traces = [TraceBuilder(rank, 2, host="node") for rank in range(2)]
    for step in range(10):
        for trace in traces:
            ahead_us = jumps_us * (trace.rank == 1 and step >= 5)
            trace.step(step, 20_000 * step + ahead_us, 20_000)
            for place in range(2):
                late_us = 4000 * (trace.rank == 1 and 3 <= step <= 6) + 7 * ((step + place) % 3)
                trace.gloo("all_reduce", 20_000 * step + 9000 * place + 2000 + ahead_us, 5000 + late_us)
    return traces


def test_ranks_of_a_host_that_leave_late_for_a_while_have_no_clock_that_jumps(tmp_path: Path) -> None:
    run = load(write_run(tmp_path, busy_ranks()))
    assert [model.jumps for model in run.clocks] == [(), ()]
    assert [len(summary.steps) for summary in run.ranks] == [10, 10]


def test_a_rank_of_a_host_that_would_leave_before_others_come_has_a_clock_that_jumps(tmp_path: Path) -> None:
    run = load(write_run(tmp_path, busy_ranks(jumps_us=9500)))
    assert [len(model.jumps) for model in run.clocks] == [0, 1]
