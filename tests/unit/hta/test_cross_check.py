"""Figures of handmade runs against HTA's: each difference has its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracekit
from tests.builders import TraceBuilder, write_run
from tests.components import require_module
from tests.gpu_steps import gpu_steps
from tracekit.hta.cross_check import CrossCheck, class_differences, cross_check, cross_check_text
from tracekit.loading.load import load
from tracekit.loading.options import StepSelection, SummaryOptions
from tracekit.report.kernel_list import list_kernels

pytestmark = pytest.mark.filterwarnings("ignore")
require_module("hta")


def checked(folder: Path, *traces: TraceBuilder) -> CrossCheck:
    path = write_run(folder, traces)
    run = tracekit.load(path)
    return cross_check(
        run,
        recording=lambda: load(path, options=SummaryOptions(steps=StepSelection(whole=True))),
        kernels=lambda: list_kernels(run),
    )


def reasons(check: CrossCheck) -> dict[tuple[str, int], tuple[str, ...]]:
    return {(each.figure, each.rank): each.reasons for each in check.comparisons}


def test_with_one_step_of_whole_microseconds_only_the_span_differs(tmp_path: Path) -> None:
    actual = checked(tmp_path, gpu_steps(steps=1, offset_us=0))
    span = ("counts from the first kernel to the last, not whole steps",)
    assert reasons(actual) == {
        ("total", 0): span,
        ("compute", 0): (),
        ("exposed", 0): (),
        ("idle", 0): span,
        ("overlap", 0): (),
        ("communication", -1): (),
    }
    assert (actual.errors, actual.class_differences) == ({}, ())


def test_last_step_and_rounding_are_named(tmp_path: Path) -> None:
    actual = reasons(checked(tmp_path, gpu_steps(offset_us=0.4)))
    both = ("leaves out the last step", "rounds times to whole microseconds")
    assert actual["compute", 0] == both


def test_kernels_that_hta_does_not_know_are_listed(tmp_path: Path) -> None:
    trace = TraceBuilder().step(1, 0, 100).kernel("void gemm()", 5, 10, launched_at=1)
    trace.kernel("void vllm::cross_device_reduce_1stage<float>(int)", 30, 20, launched_at=2)

    actual = checked(tmp_path, trace)

    classed = ("classes kernels differently",)
    assert reasons(actual)["compute", 0] == reasons(actual)["exposed", 0] == classed
    (kernel,) = actual.class_differences
    assert (kernel.function, kernel.ours, kernel.theirs) == (
        "vllm::cross_device_reduce_1stage",
        "all_reduce",
        "compute",
    )
    text = cross_check_text(actual, width=100, color=False)
    assert "vllm::cross_device_reduce_1stage: all_reduce here, compute for HTA; 0.02 ms" in text


def test_operators_that_name_a_stream_are_named(tmp_path: Path) -> None:
    trace = gpu_steps(steps=1, offset_us=0).op("triton_poi_fused_add_0", 12, 6, stream=0, correlation=77)
    assert reasons(checked(tmp_path, trace))["compute", 0] == ("counts host operators that name a stream as kernels",)


def test_what_hta_cannot_do_is_its_own_error(tmp_path: Path) -> None:
    """GIVEN a run without a device WHEN it is checked THEN HTA's errors are said."""
    trace = TraceBuilder().step(1, 0, 100).op("aten::mm", 5, 10)
    actual = checked(tmp_path, trace)
    assert set(actual.errors) >= {"temporal breakdown"}
    text = cross_check_text(actual, width=200, color=False)
    assert "HTA fails with" in text
    assert "in its temporal breakdown" in text


def test_text_has_a_line_a_reason_and_the_worst_rank(tmp_path: Path) -> None:
    check = checked(tmp_path, *(gpu_steps(rank, steps=1, offset_us=0) for rank in range(3)))
    _, head, line = cross_check_text(check, width=400, color=False).splitlines()
    assert head.endswith(": 10 of 16 figures are equal")
    assert line == (
        "· HTA counts from the first kernel to the last, not whole steps: total of rank 0 and 2 more 0.100 ms, "
        "HTA 0.065 ms; idle of rank 0 and 2 more 0.035 ms, HTA 0.000 ms"
    )


def test_plain_values_have_no_rank_for_all_ranks(tmp_path: Path) -> None:
    figures = checked(tmp_path, gpu_steps(steps=1, offset_us=0)).as_dict()["figures"]
    assert figures[1] == {"figure": "compute", "rank": 0, "tracekit": 40.0, "hta": 40.0, "reasons": []}
    assert figures[-1]["rank"] is None


def test_copies_are_classed_alike(tmp_path: Path) -> None:
    run = tracekit.load(gpu_steps().write(tmp_path / "rank0.json"))
    assert class_differences(list_kernels(run)) == []
