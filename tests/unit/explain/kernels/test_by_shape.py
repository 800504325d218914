"""What kernels compute, where, and how fast. Times are microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.explain.kernels.by_shape import MOST_OF_RANK, OTHERS, elements_moved
from tracekit.explain.kernels.sections import Kernels
from tracekit.loading.load import load
from tracekit.model.spans import module_span
from tracekit.model.table import rows_of
from tracekit.report.report import analyze

PRODUCT = {"Input Dims": [[512, 256], [256, 128]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
SUM = {"Input Dims": [[512, 128], [512, 128], []], "Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar"]}
GEMM = "void cutlass::gemm_kernel<cutlass::bfloat16_t, 128>(Params)"


def rows(folder: Path, *traces: TraceBuilder) -> list[dict[str, Any]]:
    result = analyze(load(write_run(folder, traces)), only="kernels").kernels
    assert isinstance(result, Kernels)
    return rows_of(result, "kernel_shapes")


def h200(number: int = 0) -> TraceBuilder:
    trace = TraceBuilder(number)
    trace.header["deviceProperties"] = [{"id": 0, "name": "NVIDIA H200"}]
    return trace


def trained(number: int = 0) -> TraceBuilder:
    """Two steps of two layers. Each multiplies, in a kernel of 10 us and one of 2 that sums its parts, and adds."""
    trace = h200(number)
    for step, begin in ((1, 0), (2, 200)):
        trace.step(step, begin, 200)
        for layer in (0, 1):
            at = begin + 10 + 50 * layer
            trace.label(module_span(f"layers.{layer}.mlp"), at, 40)
            trace.op("aten::linear", at + 1, 20)
            trace.op("aten::mm", at + 2, 15, **PRODUCT)
            trace.kernel(GEMM, at + 4, 10, launched_at=at + 3)
            trace.kernel("splitKreduce", at + 14, 2, launched_at=at + 5)
            trace.op("aten::add", at + 25, 5, **SUM)
            trace.kernel("add_kernel", at + 27, 4, launched_at=at + 26)
        trace.kernel("unknown", begin + 150, 3, launched_at=begin + 149)
    return trace


def test_a_kernel_has_the_shapes_and_the_place_of_its_operator(tmp_path: Path) -> None:
    """Layers alike are one row. Work counts for the longest kernel of an operator, not for its helpers."""
    gemm, add, parts, bare = rows(tmp_path, trained())
    assert [gemm[key] for key in ("kernel", "operator", "shapes", "dtype", "phase", "module", "kind")] == [
        *("gemm_kernel", "aten::mm", "512x256, 256x128", "bfloat16", "forward", "layers.*.mlp", "compute")
    ]
    assert (gemm["count"], gemm["total_ns"]) == (2, 20_000)
    assert gemm["flops_per_s"] == pytest.approx(2 * 512 * 256 * 128 / 10e-6)
    assert gemm["flops_share"] == pytest.approx(2 * 512 * 256 * 128 / 10e-6 / 989.4e12)
    assert gemm["bandwidth_bps"] == pytest.approx(2 * (512 * 256 + 256 * 128 + 512 * 128) / 10e-6)
    assert (add["operator"], add["flops_per_s"], add["total_ns"]) == ("aten::add", None, 8_000)
    assert add["bandwidth_share"] == pytest.approx(2 * 3 * 512 * 128 / 4e-6 / 4.8e12)
    assert (parts["kernel"], parts["shapes"], parts["flops_per_s"]) == ("splitKreduce", "512x256, 256x128", None)
    assert (bare["operator"], bare["module"], bare["flops_per_s"]) == ("", None, None)


def test_rows_are_means_over_the_ranks_that_have_them(tmp_path: Path) -> None:
    slower = trained(1)
    for event in slower.events:
        event["dur"] = event["dur"] * 3 if event["name"] == GEMM else event["dur"]
    gemm = rows(tmp_path, trained(), slower)[0]
    assert (gemm["ranks"], gemm["total_ns"]) == (2, 40_000)
    assert gemm["flops_per_s"] == pytest.approx(2 * 512 * 256 * 128 / 20e-6)


def test_times_sum_to_those_of_all_kernels_however_many_there_are(tmp_path: Path) -> None:
    trace = h200().step(1, 0, 1000)
    for number in range(MOST_OF_RANK + 20):
        trace.kernel(f"kernel_{number}", 5 * number, 1 + number % 3)
    found = rows(tmp_path, trace)
    assert len(found) == MOST_OF_RANK + 1
    assert sum(row["total_ns"] for row in found) == 1000 * sum(1 + number % 3 for number in range(MOST_OF_RANK + 20))
    assert [row["count"] for row in found if row["kernel"] == OTHERS] == [20]


def test_what_is_faster_than_the_device_can_be_is_no_rate(tmp_path: Path) -> None:
    """Inputs that are expanded have fewer elements in memory than their shapes say."""
    trace = h200().step(1, 0, 100).op("aten::add", 5, 5, **SUM | {"Input Dims": [[1 << 20, 1 << 10], [1], []]})
    (row,) = rows(tmp_path, trace.kernel("add_kernel", 10, 1, launched_at=6))
    assert (row["bandwidth_bps"], row["bandwidth_share"]) == (None, None)


@pytest.mark.parametrize(
    ("name", "shapes", "elements"),
    [
        ("aten::addmm", [[5], [4, 6], [6, 5]], 5 + 24 + 30 + 20),
        ("aten::bmm", [[3, 4, 5], [3, 5, 6]], 60 + 90 + 72),
        ("aten::copy_", [[7, 2], [7, 2]], 28),
        ("aten::native_layer_norm", [[8, 16], [], [16], [16]], 128 + 32 + 128),
        ("aten::_scaled_dot_product_flash_attention", [[1, 2, 8, 4], [1, 2, 6, 4], [1, 2, 6, 4]], 64 + 48 + 48 + 64),
        ("aten::convolution", [[1, 3, 8, 8], [4, 3, 3, 3]], None),
        ("aten::mm", [[4]], None),
    ],
)
def test_elements_that_are_read_and_written_at_least(name: str, shapes: list[list[int]], elements: int | None) -> None:
    assert elements_moved(name, shapes) == elements
