"""Holistic Trace Analysis with its own parser: what the bridge must be equal to."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.components import require_module

HAS_PANDAS_3 = int(pd.__version__.partition(".")[0]) >= 3
"""HTA 0.5 was written for pandas 2, with which nothing is mended and nothing of it fails."""


def load_by_hta(files: Mapping[int, Path], *, include_last_step: bool = False) -> Any:
    """Return HTA's `TraceAnalysis` of trace files by rank, parsed by HTA. The test is skipped without HTA."""
    analysis = require_module("hta.trace_analysis")
    named = {rank: str(file) for rank, file in files.items()}
    with as_on_pandas_2(), quiet(), ended_by_sigterm():
        return analysis.TraceAnalysis(trace_files=named, include_last_profiler_step=include_last_step)


def with_names(analysis: Any, rank: int) -> pd.DataFrame:
    """Return a rank's table with texts for numbers of symbols, which are in no fixed order."""
    frame: pd.DataFrame = analysis.t.traces[rank].copy()
    symbols = analysis.t.symbol_table.get_sym_table()
    for column in ("cat", "name"):
        assert frame[column].dtype == "int64"
        frame[column] = [symbols[number] for number in frame[column]]
    return frame


def assert_equal_tables(actual: Any, expected: Any) -> None:
    """Compare loaded traces: each rank's table with its index, columns and dtypes, and all that stands beside it."""
    assert list(actual.t.traces) == list(expected.t.traces)
    for rank in expected.t.traces:
        pd.testing.assert_frame_equal(with_names(actual, rank), with_names(expected, rank))
    assert set(actual.t.symbol_table.get_sym_table()) == set(expected.t.symbol_table.get_sym_table())
    assert actual.t.min_ts == expected.t.min_ts
    assert actual.t.meta_data == expected.t.meta_data


@contextmanager
def as_on_pandas_2() -> Iterator[None]:
    """Let HTA do three things that pandas 3 does otherwise or refuses.

    HTA keeps correlation ids in the smallest integer that holds them, and writes row numbers into a copy of that
    column. pandas 2 widens it in silence. pandas 3 refuses as soon as a row number does not fit.

    HTA's critical path calls `DataFrame.drop(axis=1, columns=...)`, which says the same twice.

    HTA's call graph replaces all texts of a column by integers. In pandas 2 that makes a column of integers.
    """
    if not HAS_PANDAS_3:
        yield
        return
    trace = require_module("hta.common.trace")
    link = trace.transform_correlation_to_index

    def link_in_wide_columns(frame: pd.DataFrame, symbols: Any) -> pd.DataFrame:
        if "correlation" not in frame:
            return frame
        dtype = frame["correlation"].dtype
        frame["correlation"] = frame["correlation"].astype("int64")
        linked: pd.DataFrame = link(frame, symbols)
        linked["correlation"] = linked["correlation"].astype(dtype)
        return linked

    drop = pd.DataFrame.drop

    def drop_without_axis(frame: pd.DataFrame, *arguments: Any, **named: Any) -> Any:
        if "columns" in named:
            named.pop("axis", None)
        return drop(frame, *arguments, **named)

    replace = pd.DataFrame.replace

    def replace_and_infer(frame: pd.DataFrame, *arguments: Any, **named: Any) -> Any:
        replaced = replace(frame, *arguments, **named)
        return None if replaced is None else replaced.infer_objects()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pd.DataFrame, "drop", drop_without_axis)
        patch.setattr(pd.DataFrame, "replace", replace_and_infer)
        patch.setattr(trace, "transform_correlation_to_index", link_in_wide_columns)
        yield


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the processes that HTA forks, as it does by default.

    A handler in Python that another test left would not run in a process that begins to wait for a lock as the signal
    comes. HTA would then wait for that process for ever.
    """
    handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


@contextmanager
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
