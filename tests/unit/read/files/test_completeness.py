"""How much does a file have, and was it written to its end? Traces in all layouts, cut off behind any bracket."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.damaged_runs import text as t
from tests.trace_text import Layout
from tracekit.read.files.completeness import Contents, contents_of


def trace_text(layout: Layout = "kineto", *, tail: bool = False) -> bytes:
    return TraceBuilder(3, 8).op("aten::mm", 0, 5, **{"Input Dims": [[1, 2], []]}).op("b", 9, 1).text(layout, tail=tail)


def is_complete_text(folder: Path, text: bytes) -> bool:
    path = folder / "rank3.json"
    path.write_bytes(text)
    return contents_of(path).is_whole


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
    assert contents_of(tmp_path / "rank3.json") == Contents()
    assert not is_complete_text(tmp_path, b"")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("chunk_bytes", [64, 1 << 20])
def test_steps_and_events_are_counted_wherever_the_text_is_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool, chunk_bytes: int
) -> None:
    """GIVEN three steps, two operators, the profiler's last span, and labels of tracks."""
    monkeypatch.setattr("tracekit.read.files.inflate.CHUNK_BYTES", chunk_bytes)
    builder = TraceBuilder(3, 8).step(7, 0, 10).step(8, 10, 10).step(12, 20, 10).op("a", 1, 1).op('b "ph"', 2, 1)
    builder.event("PyTorch Profiler (0)", "Trace", 0, 30, pid="Spans", thread="PyTorch Profiler")
    text = builder.text()
    path = tmp_path / "rank3.json"
    path.write_bytes(gzip.compress(text) if packed else text)

    events = len(json.loads(text)["traceEvents"])
    assert events >= 6
    assert contents_of(path) == Contents(is_whole=True, recordings=1, steps=frozenset({7, 8, 12}), events=events)
