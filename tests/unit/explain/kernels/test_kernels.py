"""Which kernels and operators a step's time goes to. Times are microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.exchanges import rank, run_of
from tests.builders import TraceBuilder, write_run
from tracekit.explain.kernels.by_name import KERNEL_TIMES, MOST_OF_RANK, MOST_SHOWN, OperationSums, OperationTimes
from tracekit.explain.kernels.sections import Kernels, kernels
from tracekit.loading.load import load
from tracekit.model.table import rows_of
from tracekit.render.terminal import terminal_text
from tracekit.report.report import analyze


def found(folder: Path, *traces: TraceBuilder) -> Kernels:
    result = analyze(load(write_run(folder, traces)), only="kernels").kernels
    assert isinstance(result, Kernels)
    return result


def by_name(result: Kernels, table: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows_of(result, table)}


def sums(**total_ns: int) -> OperationSums:
    """Return sums of compute kernels with these total times; half of it is exposed."""
    values = np.array(list(total_ns.values()), dtype=np.int64)
    return OperationSums(
        name=np.array(list(total_ns), dtype=object),
        kind=np.full(len(values), "compute", dtype=object),
        count=np.full(len(values), 2, dtype=np.int64),
        total_ns=values,
        self_ns=values,
        exposed_ns=values // 2,
    )


def gpu_rank(number: int = 0) -> TraceBuilder:
    """Two steps. In each `gemm` runs for 40 us, the last 20 of them under an all-reduce of 50 us, and a copy of 10 us
    has the last 5 of its time for itself.
    """
    trace = TraceBuilder(number)
    for step, begin in ((1, 0), (2, 200)):
        trace.step(step, begin, 200)
        trace.kernel("gemm", begin + 20, 40, launched_at=begin + 5)
        trace.nccl("all_reduce", begin + 40, 50, launched_at=begin + 6)
        trace.memcpy(begin + 85, 10, stream=9, launched_at=begin + 7)
    return trace


def test_kernels_are_exposed_while_the_other_lanes_do_nothing(tmp_path: Path) -> None:
    rows = by_name(found(tmp_path, gpu_rank(0), gpu_rank(1)), "kernels")

    shown = {name: (row["kind"], row["count"], row["total_ns"], row["exposed_ns"]) for name, row in rows.items()}
    assert shown == {
        "gemm": ("compute", 1, 40_000, 20_000),
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": ("all_reduce", 1, 50_000, 30_000),
        "Memcpy HtoD (Pinned -> Device)": ("copy", 1, 10_000, 5_000),
    }
    assert {row["ranks"] for row in rows.values()} == {2}


def test_kernels_of_one_name_count_apart_where_they_are_of_different_kinds(tmp_path: Path) -> None:
    """GIVEN one generic kernel of NCCL for two kinds of collectives THEN it has a row for each."""
    trace = TraceBuilder().step(1, 0, 200)
    generic = {"launched_at": 5, "stream": 20}
    trace.nccl("all_reduce", 20, 30, **generic).nccl("all_gather", 60, 10, **generic)
    for event in trace.events:
        if event["name"].startswith("nccl"):
            event["name"] = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
    trace.kernel("gemm", 100, 10, launched_at=9)

    rows = rows_of(found(tmp_path, trace), "kernels")

    assert [(row["kind"], row["total_ns"]) for row in rows if row["name"].startswith("nccl")] == [
        ("all_reduce", 30_000),
        ("all_gather", 10_000),
    ]


def test_self_time_is_without_what_an_operator_calls(tmp_path: Path) -> None:
    trace = TraceBuilder().step(1, 0, 100)
    trace.op("aten::linear", 10, 50).op("aten::addmm", 15, 30).op("aten::copy_", 20, 5).op("aten::copy_", 30, 5)
    trace.op("aten::add", 70, 10)

    rows = by_name(found(tmp_path, trace), "operators")

    assert {name: (row["count"], row["total_ns"], row["self_ns"]) for name, row in rows.items()} == {
        "aten::linear": (1, 50_000, 20_000),
        "aten::addmm": (1, 30_000, 20_000),
        "aten::copy_": (2, 10_000, 10_000),
        "aten::add": (1, 10_000, 10_000),
    }


def test_an_operator_within_its_own_kind_counts_once_in_total(tmp_path: Path) -> None:
    """GIVEN a DTensor, whose aten::mm calls the one of its local part THEN the total is that of the outer one."""
    trace = TraceBuilder().step(1, 0, 100).op("aten::mm", 10, 50).op("aten::mm", 20, 30)

    row = by_name(found(tmp_path, trace), "operators")["aten::mm"]

    assert (row["count"], row["total_ns"], row["self_ns"]) == (2, 50_000, 50_000)


def test_those_with_the_most_of_any_time_are_shown() -> None:
    """GIVEN more names than are shown, of which a short one is the most exposed THEN it is among them."""
    many = sums(**{f"kernel_{i}": 1000 - i for i in range(2 * MOST_SHOWN)})
    many.exposed_ns[:] = 0
    many.exposed_ns[-1] = 1
    run = run_of([rank(0, **{KERNEL_TIMES.name: OperationTimes(steps=1, sums=many)})])

    names = [row["name"] for row in rows_of(kernels(run), "kernels")]

    assert names[:2] == ["kernel_0", "kernel_1"]
    assert f"kernel_{2 * MOST_SHOWN - 1}" in names
    assert len(names) <= 3 * MOST_SHOWN


def test_a_rank_keeps_a_bounded_number_of_names(tmp_path: Path) -> None:
    trace = TraceBuilder().step(1, 0, 10_000)
    for k in range(4 * MOST_OF_RANK):
        trace.kernel(f"kernel_{k}", 10 + 10 * k, 1 + k % 9, launched_at=1)

    assert len(load(write_run(tmp_path, [trace])).ranks[0][KERNEL_TIMES].sums) <= 3 * MOST_OF_RANK


def test_the_terminal_shows_functions_and_milliseconds_a_step(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1).step(1, 0, 10_000).op("aten::mm", 10, 50)
    trace.kernel("void at::native::gemm<float, 4>(float*)", 100, 4_000, launched_at=20)
    report = analyze(load(write_run(tmp_path, [trace])), only="kernels")

    lines = terminal_text(report, extent="sections").splitlines()

    kernel = next(line.split() for line in lines if "gemm" in line)
    assert kernel == ["gemm", "1", "4.00", "4.00", "4.00", "0:", "4.00"]
    assert any(line.split() == ["aten::mm", "1", "0.05", "0.05", "0.05", "0:", "0.05"] for line in lines)


def test_a_rank_without_steps_has_none() -> None:
    assert rows_of(kernels(run_of([rank(0)])), "kernels") == []
