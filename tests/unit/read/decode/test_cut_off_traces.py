"""Traces cut off anywhere: the events before the cut are there, and one note says where it is."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.trace_text import Layout
from tests.unit.read.decode.damage import decode_text, dropped, names, with_bad
from tests.unit.read.decode.decoders import decode
from tracekit.errors import InputError

LAYOUTS: tuple[Layout, ...] = ("kineto", "compact")


@pytest.mark.parametrize("layout", ["kineto", "compact", "array"])
def test_cut_off_anywhere(tmp_path: Path, layout: Layout) -> None:
    """GIVEN a trace WHEN it is cut at any byte THEN every event that is whole is kept and the trace is incomplete."""
    trace = TraceBuilder(rank=1).op("e0", 0, 1, note={"name": "x"}).kernel("e1", 1, 1).gloo("all_reduce", 3, 4)
    text = trace.text(layout)
    whole = [event["name"] for event in trace.events]
    ends = [text.index(b'"ts"', text.index(name.encode())) for name in whole]  # each event ends behind its ts
    path = tmp_path / "rank1.json"
    seen = 0
    for cut in range(len(text)):
        path.write_bytes(text[:cut])
        try:
            decoded = decode(path)
        except InputError:
            assert not seen
            continue
        actual = names(decoded)
        seen = max(seen, len(actual))
        assert actual == whole[: len(actual)]
        closed = b"]" in text[ends[-1] : cut] and cut >= text.rindex(b"]") + 1
        assert decoded.complete is closed
        assert not dropped(decoded) or cut < text.rindex(b"]")
        if not closed:
            assert [note.id for note in decoded.notes] == ["truncated"]
        complete_events = sum(_is_whole(text, cut, i, whole) for i in range(len(whole)))
        assert len(actual) >= complete_events
    assert seen == len(whole)


def _is_whole(text: bytes, cut: int, index: int, whole: list[str]) -> bool:
    """Whether the closing brace of event `index` is before `cut`."""
    if index + 1 < len(whole):
        following = text.index(f'"{whole[index + 1]}"'.encode())
        end = text.rindex(b"}", 0, text.rindex(b"{", 0, following)) + 1
    else:
        end = text.rindex(b"}", 0, text.rindex(b"]")) + 1
    return cut >= end


def test_one_note_says_how_far_a_cut_off_file_was_read(tmp_path: Path) -> None:
    """GIVEN a file that ends inside its third event WHEN decoded THEN one note names the byte and two events."""
    text = TraceBuilder().op("e0", 0, 1).op("e1", 1, 1).op("e2", 2, 1).text()
    cut = text.index(b'"e2"')
    (note,) = decode_text(tmp_path, text[:cut]).notes
    assert (note.id, note.severity, note.events_dropped) == ("truncated", "warning", 1)
    assert note.text == f"rank0.json: cut off at byte {cut} after 2 events, which merge shows"

    packed = gzip.compress(text[:cut], mtime=0)
    (note,) = decode_text(tmp_path, packed[:-9]).notes
    assert note.id == "truncated"
    assert note.text.startswith(f"rank0.json: the gzip stream is cut off at byte {len(packed) - 9} of the file after ")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cut_off_gzip(tmp_path: Path, layout: Layout) -> None:
    trace = TraceBuilder(rank=1)
    for i in range(20):
        trace.op(f"e{i}", i, 1)
    packed = gzip.compress(trace.text(layout), mtime=0)
    counts = []
    for cut in range(len(packed)):
        path = tmp_path / "rank1.json.gz"
        path.write_bytes(packed[:cut])
        try:
            decoded = decode(path)
        except InputError:
            counts.append(0)
            continue
        actual = names(decoded)
        assert actual == [f"e{i}" for i in range(len(actual))]
        assert not decoded.complete
        assert "truncated" in [note.id for note in decoded.notes]
        counts.append(len(actual))
    assert counts == sorted(counts)
    assert counts[-1] == 20


def test_the_text_before_damage_in_a_gzip_is_used(tmp_path: Path) -> None:
    """GIVEN a wrong checksum, or garbage inside WHEN decoded THEN the events before it are kept."""
    trace = TraceBuilder()
    for i in range(200):
        trace.op(f"e{i}", i, 1, junk=str(hash(i) * 2654435761 % 2**64))
    packed = bytearray(gzip.compress(trace.text(), mtime=0))

    packed[-8:-4] = b"\0\0\0\0"
    wrong_checksum = decode_text(tmp_path, bytes(packed))
    assert names(wrong_checksum) == [f"e{i}" for i in range(200)]
    assert "truncated" in [note.id for note in wrong_checksum.notes]

    packed[len(packed) // 2 :] = b"\xff" * (len(packed) // 2)
    damaged = decode_text(tmp_path, bytes(packed))
    assert len(names(damaged)) > 50
    assert not damaged.complete


@pytest.mark.parametrize("bad", [1, 2])
def test_members_of_a_gzip_with_right_checksums_are_intact(tmp_path: Path, bad: int) -> None:
    """GIVEN three members, one with a wrong checksum THEN the text of those before it is used, and is intact."""
    trace = TraceBuilder()
    for i in range(300):
        trace.op(f"e{i}", i, 1)
    text = trace.text()
    thirds = [text[place * len(text) // 3 : (place + 1) * len(text) // 3] for place in range(3)]
    packed = [bytearray(gzip.compress(third, mtime=0)) for third in thirds]
    packed[bad][-8] ^= 0xFF
    decoded = decode_text(tmp_path, b"".join(map(bytes, packed)))
    assert abs(len(names(decoded)) - 100 * bad) <= 5  # the text in front of the events is a part of the first third
    assert decoded.intact
    assert not decoded.complete


@pytest.mark.parametrize("limit", ["text_bytes=1K", "event_bytes=10"])
def test_damaged_text_that_reaches_a_limit_is_not_intact(
    tmp_path: Path, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = TraceBuilder()
    for i in range(100):
        trace.op(f"e{i}", i, 1)
    packed = bytearray(gzip.compress(trace.text(), mtime=0))
    packed[-8] ^= 0xFF
    monkeypatch.setenv("TRACEKIT_LIMITS", limit)
    assert not decode_text(tmp_path, bytes(packed)).intact


def test_garbage_behind_a_gzip(tmp_path: Path) -> None:
    text = TraceBuilder().op("e0", 0, 1).text()
    for garbage in (b"\0" * 1000, b"garbage", b"\x1f"):
        decoded = decode_text(tmp_path, gzip.compress(text) + garbage)
        assert names(decoded) == ["e0"]
        assert decoded.complete


def test_notes_name_the_file_and_not_its_folder(tmp_path: Path) -> None:
    packed = gzip.compress(TraceBuilder().op("e0", 0, 1).text())
    for text in (packed[:-9], packed + b"garbage", with_bad("null")):
        decoded = decode_text(tmp_path, text)
        assert decoded.notes
        assert {note.file for note in decoded.notes} == {"rank0.json"}
        assert all(note.text.startswith("rank0.json: ") for note in decoded.notes)
