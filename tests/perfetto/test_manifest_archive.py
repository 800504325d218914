"""The archive of untouched files, as the trace processor sees it.

The one that is bundled (v52) knows nothing of manifests, which came with v58: that the offsets are right is asked of
the documented rule (tests/unit/render/perfetto/test_manifest.py). Here: that it opens the archive, and finds all in it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.builders import write_run
from tests.perfetto.test_merged_trace import gpu_rank, input_slices
from tracekit.analysis.load import load
from tracekit.render.perfetto.manifest import write_manifest
from tracekit.trace_processor import TraceProcessor


def test_every_slice_of_the_archive_is_found(trace_processor: TraceProcessor, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "in", [gpu_rank(0), gpu_rank(1, skew_us=12_345)])
    archive = write_manifest(load(folder), tmp_path / "run.zip")
    trace_processor.load(archive.path.read_bytes())
    assert trace_processor.errors() == []
    rows = trace_processor.query("select ifnull(category, '') as category, name, count() as n from slice group by 1, 2")
    assert {(row["category"], row["name"]): row["n"] for row in rows} == Counter(input_slices(folder))
