"""What a rank did before each collective. Times are microseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.summarized_trace import summarize_trace
from tests.unit.explain.summarized import summary_of
from tracekit.loading.options import SummaryOptions
from tracekit.loading.summarize import summarize
from tracekit.model.communication import DTYPES, KINDS, Collectives
from tracekit.model.spans import DATA_SPAN
from tracekit.model.summary import RankSummary
from tracekit.rank.recorded_steps import STEP_ENDS
from tracekit.read.decode.portable import decode

Summarize = Callable[[TraceBuilder], Collectives]


@pytest.fixture
def collectives(tmp_path: Path) -> Summarize:
    def run(trace: TraceBuilder) -> Collectives:
        return summary_of(trace, tmp_path).collectives

    return run


def since_us(actual: Collectives, trace: TraceBuilder) -> list[float]:
    return [(at - trace.wall_ns(0)) / 1000 for at in actual.released_ns.tolist()]


def test_segments_between_collectives_that_are_waited_for(collectives: Summarize) -> None:
    trace = TraceBuilder().step(0, 0, 200)
    trace.op("aten::mm", 10, 20).op("aten::add", 35, 5)
    trace.gloo("all_reduce", 50, 30, elements=100).wait(51, 30)
    trace.op("aten::mm", 90, 25)
    trace.gloo("broadcast", 120, 10, elements=7).wait(121, 10)

    actual = collectives(trace)

    assert [KINDS[kind] for kind in actual.kind] == ["all_reduce", "broadcast"]
    assert [DTYPES[dtype] for dtype in actual.dtype] == ["float32", "float32"]
    assert actual.size_bytes.tolist() == [400, 28]
    assert since_us(actual, trace) == [0, 80]
    assert actual.compute_ns.tolist() == [25_000, 25_000]
    assert actual.operations.tolist() == [2, 3]
    assert actual.step.tolist() == [0, 0]


def test_the_segment_before_a_steps_end_begins_at_the_last_release(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 100).step(1, 100, 100)
    trace.op("aten::mm", 10, 20).gloo("all_reduce", 50, 10).wait(51, 10)
    trace.op("aten::mm", 65, 4).label(DATA_SPAN, 70, 28)
    file = trace.write(tmp_path / "rank0.json", "compact")
    step_ends = summarize_trace(decode(file), 0, SummaryOptions())[STEP_ENDS]
    origin_ns = trace.wall_ns(0)
    assert (step_ends.released_ns - origin_ns).tolist() == [60_000, 60_000]
    assert (step_ends.until_ns - origin_ns).tolist() == [100_000, 200_000]
    assert (step_ends.compute_ns.tolist(), step_ends.data_ns.tolist()) == ([4_000, 4_000], [28_000, 28_000])


def test_the_work_hash_depends_on_names_and_shapes_but_not_on_order(collectives: Summarize) -> None:
    def work(*ops: tuple[str, list[int]]) -> int:
        trace = TraceBuilder().step(0, 0, 200)
        for i, (name, dims) in enumerate(ops):
            trace.op(name, 10 + 10 * i, 5, **{"Input Dims": [dims]})
        actual = collectives(trace.gloo("all_reduce", 100, 10))
        return int(actual.work[0])

    plain = work(("aten::mm", [3, 4]), ("aten::add", [5]))
    assert work(("aten::add", [5]), ("aten::mm", [3, 4])) == plain
    assert work(("aten::add", [5]), ("aten::mm", [3, 40])) != plain
    assert work(("aten::add", [5]), ("aten::mm", [3, 4]), ("aten::mm", [3, 4])) != plain
    assert work(("aten::sub", [5]), ("aten::mm", [3, 4])) != plain


def test_windows_of_a_rank_follow_each_other(tmp_path: Path) -> None:
    paths = []
    for window in (1, 0):
        trace = TraceBuilder().step(window, 1000 * window, 100).op("aten::mm", 1000 * window, 5)
        trace.gloo("all_reduce", 1000 * window + 20, 10)
        paths.append(trace.write(tmp_path / f"{window}" / "rank0.json"))
    summary = summarize(0, paths, SummaryOptions())
    assert isinstance(summary, RankSummary)
    assert summary.collectives.step.tolist() == [0, 1]
    assert since_us(summary.collectives, TraceBuilder()) == [0, 1000]


def grouped(*groups: list[int]) -> TraceBuilder:
    """An all-reduce of NCCL in each of the groups, and one by a library that names no group, as the last."""
    trace = TraceBuilder(world_size=4).step(0, 0, 200).kernel("gemm", 0, 10, launched_at=0)
    for number, ranks in enumerate(groups):
        at = 20 + 20 * number
        trace.nccl("all_reduce", at, 10, launched_at=at, group=ranks, description=f"group_{number}")
    return trace.kernel("void vllm::cross_device_reduce_1stage<half, 2>(int)", 150, 10, launched_at=140)


def test_a_kernel_that_names_no_group_is_of_all_ranks_only_where_no_other_is_possible(collectives: Summarize) -> None:
    """GIVEN groups with different members THEN it is not compared over ranks. A group of one rank does not count."""
    assert collectives(grouped([0, 1], [0, 2])).group.tolist() == [0, 1]
    assert collectives(grouped([0, 1, 2, 3], [0])).group.tolist() == [0, 1, -1]
    assert collectives(grouped()).group.tolist() == [-1]
    assert collectives(grouped([0, 1, 2, 3])).group.tolist() == [0, 0]
