"""Was a file written to its end? Traces in all layouts, cut off behind any bracket."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.damaged_runs import text as t
from tests.trace_text import Layout
from tracekit.read.files.completeness import is_complete


def trace_text(layout: Layout = "kineto", *, tail: bool = False) -> bytes:
    return TraceBuilder(3, 8).op("aten::mm", 0, 5, **{"Input Dims": [[1, 2], []]}).op("b", 9, 1).text(layout, tail=tail)


def is_complete_text(folder: Path, text: bytes) -> bool:
    path = folder / "rank3.json"
    path.write_bytes(text)
    return is_complete(path)


@pytest.mark.parametrize("layout", ["kineto", "compact", "pretty", "crlf"])
@pytest.mark.parametrize("tail", [False, True])
def test_a_whole_trace_is_complete_and_a_cut_one_is_not(tmp_path: Path, layout: Layout, tail: bool) -> None:
    text = trace_text(layout, tail=tail)
    end_of_events = text.rindex(b"]", 0, None if not tail else text.index(b'"schemaVersion"')) + 1
    assert is_complete_text(tmp_path, text)
    assert is_complete_text(tmp_path, gzip.compress(text))
    behind_brackets = [cut for cut in range(1, end_of_events) if text[cut - 1] in b"]}"]
    assert [cut for cut in behind_brackets if is_complete_text(tmp_path, text[:cut])] == []


def test_an_array_of_events_is_complete(tmp_path: Path) -> None:
    text = trace_text()
    assert is_complete_text(tmp_path, t.as_array(text))
    assert is_complete_text(tmp_path, t.as_array(text)[:-1].rstrip() + b",\n]\n"), "some tools write a last comma"
    assert not is_complete_text(tmp_path, t.array_never_closed(text))


def test_a_packed_file_that_is_cut_off_or_damaged_is_not_complete(tmp_path: Path) -> None:
    text = trace_text()
    packed = gzip.compress(text)
    assert not is_complete_text(tmp_path, packed[: len(packed) // 2])
    assert not is_complete_text(tmp_path, packed[:-8]), "its checksum is missing"
    assert not is_complete_text(tmp_path, t.bad_checksum(text))
    assert is_complete_text(tmp_path, t.members(text))


def test_a_file_that_is_not_there_or_empty_is_not_complete(tmp_path: Path) -> None:
    assert not is_complete(tmp_path / "rank3.json")
    assert not is_complete_text(tmp_path, b"")
