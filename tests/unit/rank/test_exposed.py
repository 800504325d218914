"""Exposed time is charged to the communication that ends last of those that run, and adds up."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu_jobs import simulate, spec_of
from tests.builders import TraceBuilder
from tests.summarized_trace import summarize_trace
from tracekit.explain.communication.sections import DIMENSIONS_SECTION, OVERLAP_SECTION
from tracekit.explain.communication.tables import GROUP_TIMES
from tracekit.loading.options import SummaryOptions
from tracekit.model.table import rows_of
from tracekit.read.decode.portable import decode

Span = tuple[int, int]  # start and end
spans = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)).map(lambda at: (at[0], at[0] + at[1])), max_size=5)


def exposed_of(compute: list[Span], groups: dict[str, list[Span]], *, until: int = 50) -> dict[str, int]:
    """Return the exposed time by group of a trace of one step, all in us; each group has a stream."""
    trace = TraceBuilder(rank=0, world_size=8).step(0, 0, until)
    for begin, end in compute:
        trace.kernel("gemm", begin, end - begin, launched_at=0)
    for number, (name, collectives) in enumerate(groups.items()):
        for begin, end in collectives:
            where = {"stream": 20 + number, "group": [0, number + 1], "description": f"mesh_{name}", "launched_at": 0}
            trace.nccl("all_reduce", begin, end - begin, **where)
    with TemporaryDirectory() as folder:
        path = trace.write(Path(folder) / "rank0.json")
        rows = summarize_trace(decode(path), 0, SummaryOptions())[GROUP_TIMES]
    found = {row.group.description.removeprefix("mesh_"): row.exposed_ns // 1000 for row in rows if row.group}
    return {name: exposed for name, exposed in found.items() if exposed}


@pytest.mark.parametrize(
    ("compute", "groups", "expected"),
    [
        ([(0, 10)], {"tp": [(10, 30)], "dp": [(30, 35)]}, {"tp": 20, "dp": 5}),
        ([(0, 30), (40, 50)], {"tp": [(10, 20)], "dp": [(15, 25)]}, {}),
        ([(0, 10)], {"tp": [(10, 30)], "dp": [(12, 40)]}, {"tp": 2, "dp": 28}),
        ([(0, 10)], {"tp": [(10, 40)], "dp": [(12, 30)]}, {"tp": 30}),
        ([(0, 10), (20, 25)], {"tp": [(10, 20)], "dp": [(15, 40)]}, {"tp": 5, "dp": 20}),
    ],
)
def test_the_last_to_end_of_those_that_run_is_charged(
    compute: list[Span], groups: dict[str, list[Span]], expected: dict[str, int]
) -> None:
    assert exposed_of(compute, groups) == expected


@given(compute=spans, tp=spans, dp=spans, pp=spans)
def test_it_is_as_counted_by_hand(compute: list[Span], tp: list[Span], dp: list[Span], pp: list[Span]) -> None:
    groups = {"tp": tp, "dp": dp, "pp": pp}
    expected: Counter[str] = Counter()
    for now in range(50):
        running = [(end, -begin, name) for name in groups for begin, end in groups[name] if begin <= now < end]
        if running and not any(begin <= now < end for begin, end in compute):
            latest = max(end for end, _, _ in running)
            expected[max((r for r in running if r[0] == latest), key=lambda r: r[1])[2]] += 1
    actual = exposed_of(compute, groups)
    assert sum(actual.values()) == sum(expected.values())
    ends = [span[1] for spans_of in groups.values() for span in spans_of]
    if len(set(ends)) == len(ends):  # of equal ends any may be charged
        assert actual == dict(expected)


@pytest.mark.parametrize("family", ["ddp", "fsdp", "tensor", "expert", "pipeline", "hybrid"])
def test_the_rows_of_each_table_sum_to_the_exposed_time(family: str) -> None:
    report = simulate(spec_of(family, 3)).report()
    overlap, dimensions = report.result(OVERLAP_SECTION), report.result(DIMENSIONS_SECTION)
    assert overlap is not None
    assert dimensions is not None
    tables = [rows_of(overlap, "communication"), rows_of(dimensions, "by_rank")]
    for summary in report.run.ranks:
        expected_ns = sum(step.exposed_comm_ns for step in summary.steps if step.complete)
        for table in tables[: 1 + bool(tables[1])]:  # one dimension alone has no table
            of_rank = [row for row in table if row["rank"] == summary.rank]
            if of_rank:
                assert sum(row["exposed_ns"] for row in of_rank) == expected_ns
