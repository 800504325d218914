"""HTA on our columns answers as HTA does on its own, on real traces of GPUs: every analysis on every trace."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import tracekit
from tests.components import require_module
from tests.unit.hta.hta_itself import HAS_PANDAS_3, as_on_pandas_2, assert_equal_tables, load_by_hta
from tracekit.hta.analyses import ANALYSES, HtaRequest, HtaResult, run_analysis
from tracekit.hta.package import rounding

# HTA warns of its own use of pandas and of logging; not ours to mend.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]
require_module("hta")

TRACES = {
    "dlrm": "dlrm_8xV100",
    "a100": "single_rank/a100_ddp_rank0_of_2.json.gz",
    "mi300x": "single_rank/mi300x_resnet_rank0_of_8.json.gz",
    "b200": "single_rank/b200_tp8_custom_allreduce.json.gz",
}
OTHERS = {"gloo": "gloo_rank34_of_300", "two of 128": "two_of_128"}
"""HTA loads these, though it can analyse little of them."""
ANNOTATIONS = {"b200": "execute_context"}  # of inference: it has no steps

FAILURES = {
    ("b200", "trace-diff"): "ValueError: Trace first doesn't have any iteration.",
}
"""What HTA cannot do on these traces, with either parser."""


@cache
def loaded(traces: Path, name: str) -> tracekit.Run:
    return tracekit.load(traces / (TRACES | OTHERS)[name])


def files_of(run: tracekit.Run) -> dict[int, Path]:
    return {summary.rank: Path(summary.files[0]) for summary in run.ranks}


@cache
def by_hta(traces: Path, name: str) -> Any:
    return load_by_hta(files_of(loaded(traces, name)))


@pytest.mark.parametrize("last_step", [False, True])
@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("name", [*TRACES, *OTHERS])
def test_all_columns_of_all_ranks_are_equal(real_traces: Path, name: str, rounded: bool, last_step: bool) -> None:
    run = loaded(real_traces, name)
    with rounding(enabled=rounded):
        actual = tracekit.to_hta(run, include_last_step=last_step)
        expected = load_by_hta(files_of(run), include_last_step=last_step)
    assert_equal_tables(actual, expected)


@pytest.mark.parametrize("analysis", ANALYSES)
@pytest.mark.parametrize("name", TRACES)
def test_results_are_equal(real_traces: Path, name: str, analysis: str) -> None:
    """GIVEN an HTA that pandas does not hinder WHEN it analyses both THEN results, errors and remarks are equal."""
    run = loaded(real_traces, name)
    annotation = ANNOTATIONS.get(name, "ProfilerStep")
    ours = HtaRequest(load=lambda: tracekit.to_hta(run), analysis=tracekit.to_hta(run), annotation=annotation)
    theirs = HtaRequest(
        load=lambda: load_by_hta(files_of(run)), analysis=by_hta(real_traces, name), annotation=annotation
    )
    with as_on_pandas_2():
        actual, expected = run_analysis(analysis, ours), run_analysis(analysis, theirs)

    assert actual.error == expected.error == FAILURES.get((name, analysis), "")
    assert [*in_fixed_order(actual)] == [*in_fixed_order(expected)]
    for title, frame in in_fixed_order(expected).items():
        pd.testing.assert_frame_equal(in_fixed_order(actual)[title], frame)
    has_tables = bool(expected.tables)
    assert has_tables == ((name, analysis) not in FAILURES and analysis != "counters"), expected.remarks


def in_fixed_order(result: HtaResult) -> Mapping[str, pd.DataFrame]:
    """Return the tables; the edges of a critical path come from a set, and are sorted."""
    tables = dict(result.tables)
    if "critical path" in tables:
        path = tables["critical path"]
        tables["critical path"] = path.sort_values(["rank", "event_idx", "type", "duration"]).reset_index(drop=True)
    return tables


@pytest.mark.skipif(not HAS_PANDAS_3, reason="HTA's critical path works on pandas 2")
@pytest.mark.parametrize("name", TRACES)
def test_what_hta_cannot_do_on_pandas_3_is_its_own_error(real_traces: Path, name: str) -> None:
    run = loaded(real_traces, name)
    request = HtaRequest(
        load=lambda: tracekit.to_hta(run),
        analysis=tracekit.to_hta(run),
        annotation=ANNOTATIONS.get(name, "ProfilerStep"),
    )
    result = run_analysis("critical-path", request)
    assert (result.error, result.tables) == ("ValueError: Cannot specify both 'axis' and 'index'/'columns'", {})
    assert run_analysis("overlap", request).error == ""
