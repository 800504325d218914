"""When a CPU rank waited for its communication. Times in us."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.summarized_trace import summarize_trace
from tracekit.loading.options import SummaryOptions
from tracekit.read.decode.portable import decode


def exposed_us(trace: TraceBuilder, path: Path) -> float:
    """Return for how long the rank waited for the trace's one collective."""
    collectives = summarize_trace(decode(trace.write(path)), trace.rank, SummaryOptions()).collectives
    (waited_ns,) = collectives.waited_ns.tolist()
    return float(waited_ns / 1000)


@pytest.mark.parametrize(
    ("copied_at", "for_us", "waited_us"),
    [
        pytest.param(30_200, 40, 20_000, id="after the span"),
        pytest.param(29_940, 40, 20_000, id="shortly before its end is recorded"),
        pytest.param(29_940, 100, 20_000, id="over its recorded end"),
        pytest.param(25_000, 40, 30_000 - 25_040, id="within it, and waits again"),
        pytest.param(25_000, 9_000, 0, id="over its end and long before"),
    ],
)
def test_what_computes_in_the_last_moment_was_released_by_it(
    tmp_path: Path, copied_at: int, for_us: int, waited_us: int
) -> None:
    """GIVEN a reduction from 5 to 30 ms that the rank awaits from 10 ms on, and a copy of its result."""
    trace = TraceBuilder().step(0, 0, 50_000).op("aten::mm", 5_100, 4_900)
    trace.gloo("all_reduce", 5_000, 25_000, issued_at=4_950)
    trace.op("aten::copy_", copied_at, for_us)
    assert exposed_us(trace, tmp_path / "rank0.json") == pytest.approx(waited_us, abs=1)


@pytest.mark.parametrize(
    ("computes_until", "waited_us"),
    [
        pytest.param(10_000, 40_000, id="after a long wait"),
        pytest.param(45_000, 2_000, id="after compute that hid the reduction"),
    ],
)
def test_the_interpreters_lock_may_keep_the_end_from_being_recorded(
    tmp_path: Path, computes_until: int, waited_us: int
) -> None:
    """GIVEN a reduction from 5 to 50 ms, the end of which is recorded as the rank has computed for 4 ms again."""
    trace = TraceBuilder().step(0, 0, 60_000).op("aten::mm", 5_100, computes_until - 5_100)
    trace.gloo("all_reduce", 5_000, 45_000, issued_at=4_950)
    for copied_at in range(46_000, 50_000, 100) if waited_us > 4_000 else (47_900,):
        trace.op("aten::copy_", copied_at, 90)
    assert exposed_us(trace, tmp_path / "rank0.json") == pytest.approx(waited_us, abs=500)


def test_on_a_busy_host_the_lock_and_a_turn_add_up(tmp_path: Path) -> None:
    """GIVEN a reduction from 5 to 65 ms, the end of which is recorded as the rank has computed for 8 ms again."""
    trace = TraceBuilder().step(0, 0, 120_000).op("aten::mm", 4_000, 900)
    trace.gloo("all_reduce", 5_000, 60_000, issued_at=4_950)
    for at in range(57_000, 66_000, 100):
        trace.op("aten::copy_", at, 90)
    trace.gloo("all_reduce", 90_000, 1_000, issued_at=89_900)
    recorded = summarize_trace(decode(trace.write(tmp_path / "rank0.json")), trace.rank, SummaryOptions()).collectives
    assert recorded.waited_ns[0] == pytest.approx(60e6, abs=1e6)
    assert recorded.released_ns[1] == recorded.end_ns[0]
