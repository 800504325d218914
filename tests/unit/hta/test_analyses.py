"""HTA's analyses as plain tables; an error of HTA is one line and ends none of the others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import tracekit
from tests.builders import TraceBuilder, write_run
from tests.components import require_module
from tests.gpu_steps import gpu_steps
from tests.unit.hta.hta_itself import HAS_PANDAS_3, as_on_pandas_2, load_by_hta
from tracekit.hta.analyses import ANALYSES, HtaRequest, error_line, run_analysis

pytestmark = pytest.mark.filterwarnings("ignore")
require_module("hta")


@pytest.fixture
def request_of_two_ranks(tmp_path: Path) -> HtaRequest:
    run = tracekit.load(write_run(tmp_path, [gpu_steps(0), gpu_steps(1, offset_us=4.5)]))
    return HtaRequest(load=lambda: tracekit.to_hta(run), analysis=tracekit.to_hta(run))


@pytest.mark.parametrize("name", [name for name in ANALYSES if name not in {"counters", "critical-path"}])
def test_tables_have_plain_columns(request_of_two_ranks: HtaRequest, name: str) -> None:
    result = run_analysis(name, request_of_two_ranks)
    assert (result.error, result.remarks) == ("", ())
    assert result.tables
    for frame in result.tables.values():
        assert all(isinstance(column, str) for column in frame.columns)
        assert frame.index.tolist() == [*range(len(frame))]
        assert "name" not in frame or frame["name"].map(lambda each: isinstance(each, str)).all()


def test_both_ranks_are_in_the_tables_of_ranks(request_of_two_ranks: HtaRequest) -> None:
    for name in ("idle-time", "queue-length", "memory-bandwidth", "launch-statistics", "temporal-breakdown"):
        for title, frame in run_analysis(name, request_of_two_ranks).tables.items():
            assert set(frame["rank"]) == {0, 1}, (name, title)


def test_first_and_last_step_are_compared_without_another_run(request_of_two_ranks: HtaRequest) -> None:
    (frame,) = run_analysis("trace-diff", request_of_two_ranks).tables.values()
    relu = frame[frame["name"].str.startswith("void relu")].iloc[0]
    assert (relu["first_counts"], relu["last_counts"], relu["diff_counts"]) == (1, 1, 0)


def test_another_run_is_compared(request_of_two_ranks: HtaRequest, tmp_path: Path) -> None:
    trace = gpu_steps().op("aten::extra", 15, 3)
    other = tracekit.load(trace.write(tmp_path / "other" / "rank0.json"))
    request = HtaRequest(
        load=request_of_two_ranks.load, analysis=request_of_two_ranks.analysis, against=lambda: tracekit.to_hta(other)
    )
    (frame,) = run_analysis("trace-diff", request).tables.values()
    assert frame.loc[frame["name"] == "aten::extra", "diff_counts"].tolist() == [1]


def test_without_counters_hta_says_why(request_of_two_ranks: HtaRequest) -> None:
    result = run_analysis("counters", request_of_two_ranks)
    assert result.tables == {}
    assert "Could not find events of 'cuda_profiler_range' category" in result.remarks[-1]


def test_an_exception_of_hta_is_a_line(request_of_two_ranks: HtaRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> pd.DataFrame:
        raise KeyError("thread_id\nand more")

    monkeypatch.setattr(request_of_two_ranks.analysis, "get_temporal_breakdown", fail)
    result = run_analysis("temporal-breakdown", request_of_two_ranks)
    assert (result.error, result.tables) == (r"KeyError: 'thread_id\nand more'", {})


def test_an_error_without_a_text_is_its_type() -> None:
    assert error_line(AssertionError()) == "AssertionError"
    assert error_line(ValueError("one\ntwo")) == "ValueError: one"


def test_what_hta_prints_is_not_shown(request_of_two_ranks: HtaRequest, capsys: pytest.CaptureFixture[str]) -> None:
    speaking = SimpleNamespace(t=request_of_two_ranks.analysis.t, get_comm_comp_overlap=_print_and_return)
    result = run_analysis("overlap", HtaRequest(load=request_of_two_ranks.load, analysis=speaking))
    assert len(result.tables["overlap"]) == 1
    assert capsys.readouterr() == ("", "")


def _print_and_return(*, visualize: bool) -> pd.DataFrame:
    print("visualize:", visualize)
    return pd.DataFrame({"rank": [0]})


def test_counters_of_kernels_are_those_of_hta(tmp_path: Path) -> None:
    """GIVEN a recording of CUPTI's counters, which has no kernels WHEN HTA joins them to operators THEN both agree."""
    trace = TraceBuilder().step(1, 0, 100)
    for at in (10, 40):
        trace.op("aten::linear", at, 20).op("aten::mm", at + 2, 15)
        trace.event("cudaLaunchKernel", "cuda_runtime", at + 5, 2, args={"correlation": at})
        counters = {"smsp__inst_executed.sum": 17 * at, "dram__bytes.sum": at}
        trace.event("void gemm<float>(float*)", "cuda_profiler_range", at + 6, 3, pid=0, thread=0, args=counters)
    files = {0: trace.write(tmp_path / "rank0.json")}
    run = tracekit.load(files[0])
    unmended = run_analysis("counters", HtaRequest(load=lambda: tracekit.to_hta(run), analysis=tracekit.to_hta(run)))
    refusal = "TypeError: The axis argument to unique is not supported for dtype object"
    assert unmended.error == (refusal if HAS_PANDAS_3 else "")

    with as_on_pandas_2():
        actual, expected = (
            run_analysis("counters", HtaRequest(load=lambda: tracekit.to_hta(run), analysis=analysis))
            for analysis in (tracekit.to_hta(run), load_by_hta(files))
        )

    assert (actual.error, actual.remarks) == (expected.error, expected.remarks) == ("", ())
    (frame,), (wanted,) = actual.tables.values(), expected.tables.values()
    pd.testing.assert_frame_equal(frame[wanted.columns], wanted)
    assert frame["smsp__inst_executed.sum"].tolist() == [170, 680]
    assert frame["bottom_level_op"].tolist() == ["aten::mm", "aten::mm"]
