"""Merged documents among the input are recognized and left out."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tests.unit.chrome.chrome_documents import chrome_document, slices_of
from tracekit.chrome import ChromeWriter
from tracekit.errors import InputError
from tracekit.loading.load import load


def page(writer: ChromeWriter) -> None:
    steps = [(1000 * k, 900, k) for k in range(3)]
    main = writer.add_track("main", parent=writer.add_rank_page("rank 0"))
    writer.write_slices(main, slices_of(steps, [f"ProfilerStep#{k}" for k in range(3)]))


@pytest.mark.parametrize("name", ["run.json", "rank0.json.gz"])
def test_a_merged_document_among_the_recordings_is_left_out(tmp_path: Path, name: str) -> None:
    folder = write_run(tmp_path / "run", [TraceBuilder(0, 1).step(0, 0, 100).op("aten::mm", 10, 20)])
    before = load(folder)
    target = tmp_path / "run" / "merged" / name
    target.parent.mkdir()
    document = chrome_document(page)
    target.write_bytes(gzip.compress(document) if name.endswith(".gz") else document)
    run = load(folder)
    assert [summary.files for summary in run.ranks] == [summary.files for summary in before.ranks]
    assert run.other_runs == ()
    assert [note.text for note in run.notes if note.file == name] == [
        f"{name}: a merged trace, which tracekit wrote; left out"
    ]
    with pytest.raises(InputError, match="a merged trace"):
        load(target)
