"""What each kernel of a run counts as, and by which rule. Times are microseconds."""

from __future__ import annotations

from pathlib import Path

from tests.builders import TraceBuilder, write_run
from tracekit.loading.load import load
from tracekit.loading.options import SummaryOptions
from tracekit.render.run_info import kernel_text
from tracekit.report.kernel_list import list_kernels


def a_rank(rank: int) -> TraceBuilder:
    trace = TraceBuilder(rank).step(0, 0, 1000).kernel("void my_mlp<128>(float*)", 50, 100, launched_at=1)
    trace.kernel("void my_mlp<256>(float*)", 160, 60, launched_at=2).memcpy(230, 7, launched_at=3)
    trace.kernel("void dpsk::ep::internode::dispatch<8>(int4*)", 300, 50, stream=27, launched_at=4)
    trace.kernel("ampere_sgemm_128x64_tn", 400, 30, launched_at=5)
    trace.op("symm_mem::exchange", 6, 10).kernel("mystery", 500, 20, stream=33, launched_at=8)
    return trace.nccl("all_reduce", 600, 10, launched_at=20)


def test_a_row_for_each_function_with_its_class_and_rule(tmp_path: Path) -> None:
    """GIVEN two ranks THEN times and counts are sums over both, the longest first."""
    run = load(write_run(tmp_path, [a_rank(0), a_rank(1)]))
    rows = [(use.function, use.kind, use.rule, use.count, use.total_ns) for use in list_kernels(run)]
    assert rows == [
        ("my_mlp", "compute", "", 4, 320_000),
        ("dpsk::ep::internode::dispatch", "dispatch", "DeepEP", 2, 100_000),
        ("ampere_sgemm_128x64_tn", "compute", "GEMM or attention", 2, 60_000),
        ("mystery", "unclassified", "(its stream)", 2, 40_000),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "all_reduce", "NCCL", 2, 20_000),
        ("Memcpy HtoD (Pinned -> Device)", "copy", "", 2, 14_000),
    ]


def test_rules_of_the_user_are_shown_as_they_are(tmp_path: Path) -> None:
    options = SummaryOptions().with_rules(["^mystery$=all_to_all", "my_mlp<128=compute"])
    uses = list_kernels(load(write_run(tmp_path, [a_rank(0)])), options=options)
    assert {(use.function, use.kind, use.rule) for use in uses if use.rule in ("^mystery$", "my_mlp<128")} == {
        ("mystery", "all_to_all", "^mystery$"),
        ("my_mlp", "compute", "my_mlp<128"),
    }


def test_a_rank_on_a_cpu_has_none(tmp_path: Path) -> None:
    run = load(write_run(tmp_path, [TraceBuilder().step(0, 0, 100).op("aten::mm", 10, 20)]))
    assert list_kernels(run) == []
    assert "the ranks computed on CPUs" in kernel_text(run, [])


def test_the_list_is_at_most_80_columns_wide(tmp_path: Path) -> None:
    trace = a_rank(0)
    for number in range(30):
        trace.kernel(f"a_function_with_a_name_{'that_is_long_' * 8}{number}", 700 + number, 1, launched_at=30 + number)
    trace.kernel(f"void ncclDevKernel_{'Long' * 30}::all_reduce(int)", 900, 1, launched_at=99)
    run = load(write_run(tmp_path, [trace]))
    lines = kernel_text(run, list_kernels(run)).splitlines()
    assert [line for line in lines if len(line) > 80 and not line.startswith((str(tmp_path), "Next:"))] == []
    assert any("13 more functions compute or copy" in line for line in lines)
