"""A run is handed to HTA: which ranks and recordings, and what HTA finds in it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import tracekit
from tests.builders import TraceBuilder, write_run
from tests.components import require_module
from tests.gpu_steps import gpu_steps
from tests.unit.hta.hta_itself import assert_equal_tables, load_by_hta
from tracekit.errors import InputError, UsageError

pytestmark = pytest.mark.filterwarnings("ignore")
require_module("hta")


def two_ranks(folder: Path) -> tracekit.Run:
    return tracekit.load(write_run(folder, [gpu_steps(0), gpu_steps(1, offset_us=7.5)]))


def test_a_run_is_what_hta_loads_from_its_files(tmp_path: Path) -> None:
    run = two_ranks(tmp_path)
    expected = load_by_hta({rank: tmp_path / f"rank{rank}.json.gz" for rank in range(2)})
    assert_equal_tables(tracekit.to_hta(run), expected)


def test_ranks_can_be_chosen(tmp_path: Path) -> None:
    run = two_ranks(tmp_path)
    assert list(tracekit.to_hta(run, ranks=[1]).t.traces) == [1]
    with pytest.raises(UsageError, match="no rank 2-3 in the run"):
        tracekit.to_hta(run, ranks=[1, 2, 3])


def test_of_several_recordings_the_last_is_taken(tmp_path: Path) -> None:
    for first, recording in ((5, gpu_steps(steps=2)), (7, gpu_steps(steps=3))):
        recording.steps = [(first + at, start, length) for at, (_, start, length) in enumerate(recording.steps)]
        recording.capture().write_capture(tmp_path)
    run = tracekit.load(tmp_path)

    counts = [len(tracekit.to_hta(run, window=window, include_last_step=True).t.traces[0]) for window in (0, 1, -1)]

    assert counts[0] < counts[1] == counts[2]
    with pytest.raises(UsageError, match="no window 2"):
        tracekit.to_hta(run, window=2)


def test_hta_can_parse_again_for_its_diff_of_traces(tmp_path: Path) -> None:
    """HTA's `LabeledTrace` parses a trace again that is loaded."""
    diff = require_module("hta.trace_diff")
    actual, expected = tracekit.to_hta(two_ranks(tmp_path)), load_by_hta({0: tmp_path / "rank0.json.gz"})

    compared = [
        diff.TraceDiff.compare_traces(
            diff.LabeledTrace("one", each.t), diff.LabeledTrace("other", each.t), control_iteration=5, test_iteration=6
        )
        for each in (actual, expected)
    ]

    assert (compared[0]["one_counts"] > 0).any()
    pd.testing.assert_frame_equal(*compared)


def test_keys_of_the_file_are_its_metadata(tmp_path: Path) -> None:
    trace = TraceBuilder(rank=3).step(1, 0, 50).kernel("void gemm()", 5, 5, launched_at=1)
    trace.header["deviceProperties"] = [{"id": 0, "name": "Test GPU", "sharedMemPerBlock": 49152}]
    run = tracekit.load(trace.write(tmp_path / "rank3.json"))

    metadata = tracekit.to_hta(run).t.meta_data[3]

    assert metadata["deviceProperties"] == trace.header["deviceProperties"]
    assert metadata["baseTimeNanoseconds"] == trace.base_ns
    assert "traceEvents" not in metadata


def test_a_path_is_enough(tmp_path: Path) -> None:
    run = two_ranks(tmp_path)
    for actual, expected in (
        (tracekit.to_hta(tmp_path), tracekit.to_hta(run)),
        (
            tracekit.to_hta([str(tmp_path)], ranks=[1], include_last_step=True),
            tracekit.to_hta(run, ranks=[1], include_last_step=True),
        ),
    ):
        assert_equal_tables(actual, expected)
    with pytest.raises(UsageError, match="no rank 5 in the run"):
        tracekit.to_hta(tmp_path, ranks=[5])
    with pytest.raises(UsageError, match="no such run"):
        tracekit.to_hta(tmp_path, run="another")


def test_a_rank_without_events_of_hta_is_an_error(tmp_path: Path) -> None:
    path = TraceBuilder().event("PyTorch Profiler (0)", "Trace", 0, 5).write(tmp_path / "rank0.json")
    with pytest.raises(InputError, match="no event in it that HTA counts"):
        tracekit.to_hta(path)
