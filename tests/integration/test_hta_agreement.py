"""Holistic Trace Analysis 0.5.0, on real traces of GPUs, against tracekit on the same steps.

HTA's conventions differ from ours by three choices of its own, each of which it can be told to leave: it rounds times
down to microseconds (HTA_DISABLE_NS_ROUNDING=1), drops the last step (include_last_profiler_step=True) and answers in
percent with two decimals. Told so, it agrees to its last decimal; with its defaults it gives its published answers.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import tracekit
from tests.components import require
from tracekit.explain.step_time.breakdown import Breakdown

# HTA warns of its own use of pandas and of logging; not ours to mend.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]

A100 = "single_rank/a100_ddp_rank0_of_2.json.gz"
MI300X = "single_rank/mi300x_resnet_rank0_of_8.json.gz"
DLRM = "dlrm_8xV100"

Analysed = Callable[..., Any]


@pytest.fixture
def hta(real_traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Analysed:
    """HTA's analysis of a file or folder of the real traces."""
    require("hta", importlib.util.find_spec("hta"), "pip install 'torch-tracekit[dev]'")
    trace = importlib.import_module("hta.common.trace")
    link_launches = trace.transform_correlation_to_index

    def link_launches_in_wide_columns(frame: pd.DataFrame, symbols: Any) -> pd.DataFrame:
        # HTA keeps correlation ids in the smallest integer that holds them and writes row numbers into a copy of that
        # column. pandas 2 widens it in silence; pandas 3 refuses as soon as a row number does not fit.
        frame["correlation"] = frame["correlation"].astype("int64")
        linked: pd.DataFrame = link_launches(frame, symbols)
        return linked

    monkeypatch.setattr(trace, "transform_correlation_to_index", link_launches_in_wide_columns)

    def analysed(name: str, *, rounded: bool, last_step: bool) -> Any:
        monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "0" if rounded else "1")
        folder = real_traces / name
        if folder.is_file():  # HTA reads folders only
            folder = tmp_path / "hta"
            folder.mkdir()
            shutil.copy(real_traces / name, folder)
        analysis = importlib.import_module("hta.trace_analysis")
        return analysis.TraceAnalysis(trace_dir=str(folder), include_last_profiler_step=last_step)

    return analysed


def breakdown_of(path: Path) -> Breakdown:
    result = tracekit.analyze(str(path), only=["breakdown"]).breakdown
    assert result is not None
    return result


def overlap_percent(analysis: Any) -> list[float]:
    frame = analysis.get_comm_comp_overlap(visualize=False).sort_values("rank")
    return [float(value) for value in frame["comp_comm_overlap_pctg"]]


@pytest.mark.parametrize("name", [A100, MI300X])
def test_on_the_same_steps_overlap_and_compute_time_are_equal(hta: Analysed, real_traces: Path, name: str) -> None:
    ranks = breakdown_of(real_traces / name).ranks
    theirs = hta(name, rounded=False, last_step=True)

    assert overlap_percent(theirs) == [round(100 * value, 2) for value in ranks["overlap_ratio"]]
    compute_us = theirs.get_temporal_breakdown(visualize=False)["compute_time(us)"]
    # HTA adds microseconds as floats.
    assert [round(1000 * value, 1) for value in compute_us] == pytest.approx(list(ranks["compute_ns"]), abs=1)


def test_without_its_last_step_the_rest_is_equal(hta: Analysed, real_traces: Path) -> None:
    steps = breakdown_of(real_traces / A100).steps
    kept = steps[steps["step"] < steps["step"].max()]
    ours = kept["overlapped_comm_ns"].sum() / kept["comm_ns"].sum()

    assert overlap_percent(hta(A100, rounded=False, last_step=False)) == [round(100 * ours, 2)]


def test_all_ranks_of_a_run_are_equal(hta: Analysed, real_traces: Path) -> None:
    ranks = breakdown_of(real_traces / DLRM).ranks.sort_values("rank")

    # Its times are whole microseconds, its only step is kept: the conventions change nothing.
    assert overlap_percent(hta(DLRM, rounded=True, last_step=False)) == [
        round(100 * value, 2) for value in ranks["overlap_ratio"]
    ]


@pytest.mark.parametrize(("name", "percent"), [(A100, 14.31), (MI300X, 22.45)])
def test_with_its_defaults_it_gives_its_published_answers(hta: Analysed, name: str, percent: float) -> None:
    assert overlap_percent(hta(name, rounded=True, last_step=False)) == [percent]
