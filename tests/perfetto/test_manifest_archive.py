"""The archive of unchanged files, read by the trace processor.

The bundled one (v52) ignores manifests, which came with v58. So tests/unit/render/perfetto/test_manifest.py checks the
offsets with the documented rule. These tests check that the archive can be opened and that nothing is lost.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.builders import write_run
from tests.perfetto.test_merged_trace import gpu_rank, input_slices
from tracekit.analysis.load import load
from tracekit.render.perfetto.manifest import write_manifest
from tracekit.trace_processor import TraceProcessor


def test_every_slice_of_the_files_is_in_the_archive(trace_processor: TraceProcessor, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "in", [gpu_rank(0), gpu_rank(1, skew_us=12_345)])
    archive = write_manifest(load(folder), tmp_path / "run.zip")
    trace_processor.load(archive.path.read_bytes())
    assert trace_processor.errors() == []
    rows = trace_processor.query("select ifnull(category, '') as category, name, count() as n from slice group by 1, 2")
    assert {(row["category"], row["name"]): row["n"] for row in rows} == Counter(input_slices(folder))
