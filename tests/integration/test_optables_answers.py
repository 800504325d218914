"""A public operation table whose what-if is known from the reference implementation of its publishers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.components import require_module
from tracekit.explain.whatif.whatif import what_if
from tracekit.optables.operation_table import read_frame
from tracekit.optables.straggler_analysis import graph_of_operations, read_operations


def test_what_if_of_a_pipeline_job_with_a_slow_last_stage(real_traces: Path) -> None:
    """The reference implementation of Lin et al. (OSDI 2025) gives the same figures, in single precision."""
    require_module("pyarrow")
    folder = real_traces / "whatif_ST"
    expected = json.loads((folder / "result-ST.json").read_text())
    operations = read_operations(read_frame(folder / "trace-ST.parquet"), "trace-ST.parquet")
    found = what_if(graph_of_operations(operations, "trace-ST.parquet").graph)
    assert found.notes == ()
    assert found.steps == 32
    assert found.slowdown == pytest.approx(expected["blocking_slowdown"], rel=1e-5)
    assert 1 / (1 + found.replay_error) == pytest.approx(expected["launch_slowdown"], rel=1e-5)
    by_stage = {int(stage): s for stage, s in expected["blocking_decompose_by_stage"].items()}
    assert dict(found.by_stage) == pytest.approx(by_stage, rel=1e-5)
    assert dict(found.by_type) == pytest.approx(expected["blocking_decompose_by_optype"], rel=1e-5)
    assert found.slowest_ranks_share == pytest.approx(json.loads((folder / "mw-ST.json").read_text())["Mw"], abs=1e-4)
    assert found.last_stage_share == pytest.approx(json.loads((folder / "ms-ST.json").read_text())["Ms"], abs=1e-4)
    balanced = found.changes[0]
    assert (balanced.what, balanced.remedy) == ("perfectly balanced stages", "stages")
    assert balanced.saves_ns_per_step == pytest.approx(295.9e6, rel=1e-3)
    assert all(change.ranks == () for change in found.changes)  # the last stage has no peers
