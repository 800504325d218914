"""Reports whose tables are hard to write: hostile names, null beside empty text, large numbers, every type."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.builders import TraceBuilder, write_run
from tests.places import DATA
from tracekit.api import Report, analyze

HOSTILE = '=HYPERLINK("http://evil.example","x")\r\n\'\x1b[31m\u202e<img src=x> | `a` _x000D_ \ufffe @team #12;\t,'


def hostile_report(folder: Path) -> Report:
    """Return the report on two ranks whose group, host and device have names that are formulas, markup and controls."""
    ranks = []
    for rank in (0, 1):
        trace = TraceBuilder(rank, 2, host=HOSTILE)
        for step in range(3):
            begin = 100 * step
            trace.step(step, begin, 100).kernel("gemm", begin, 50 + 30 * rank, launched_at=begin)
            trace.nccl("all_reduce", begin + 50 + 30 * rank, 50 - 30 * rank, launched_at=begin + 1, description=HOSTILE)
        trace.header["deviceProperties"] = [{"name": HOSTILE}]
        ranks.append(trace)
    return analyze(write_run(folder, ranks))


@cache
def recorded_report() -> Report:
    """Return the report on recorded DDP: buckets, settings of several types, nulls."""
    return analyze(DATA / "ddp_slow_rank")
