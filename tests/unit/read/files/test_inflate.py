"""Packed files: limits, and packages that are not installed. Damaged gzip: test_cut_off_traces.py."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.components import require_module
from tests.unit.read.decode.decoders import decode
from tracekit.errors import InputError
from tracekit.read.files import inflate
from tracekit.read.files.discover import discover
from tracekit.read.files.inflate import TextChunks


@pytest.mark.parametrize("size", [1, 100, 4096])
@pytest.mark.parametrize("cut", [0, 1, 8, 9, 500])
def test_chunks_join_to_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, cut: int) -> None:
    """GIVEN chunks of any size WHEN a gzip is whole or cut THEN they join to the same text."""
    text = b"".join(b"%d " % (i * i % 997) for i in range(3000)) + b"z" * 5000
    packed = gzip.compress(text)
    path = tmp_path / "a.gz"
    path.write_bytes(packed[: len(packed) - cut])
    whole = b"".join(TextChunks(path))
    assert text.startswith(whole)
    assert cut > 8 or whole == text  # the last 8 bytes are a checksum and a length
    assert cut < 500 or whole != text
    monkeypatch.setattr(inflate, "CHUNK_BYTES", size)
    chunks = TextChunks(path)
    assert b"".join(chunks) == whole
    assert (chunks.cut_off is None) is (cut == 0)
    assert chunks.notes == []
    if chunks.cut_off is not None:
        assert chunks.cut_off.kind == "truncated"
        assert f"at byte {len(packed) - cut} of the file" in chunks.cut_off.what


def test_a_gzip_bomb_stops_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflate, "_UNCHECKED_BYTES", 1 << 20)
    path = TraceBuilder().op("first", 0, 1).op("x" * (16 << 20), 1, 1).write(tmp_path / "bomb.json.gz")
    decoded = decode(path)
    assert [decoded.events.strings[i] for i in decoded.events.name] == ["first"]
    assert not decoded.complete
    assert decoded.notes[0].id == "limit"
    assert "bomb.json.gz" in decoded.notes[0].text


def test_zstd_without_its_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    path = tmp_path / "a.json.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + b"\0" * 20)
    with pytest.raises(InputError) as caught:
        decode(path)
    assert "a.json.zst" in caught.value.message
    assert caught.value.hint == "pip install zstandard"


@pytest.mark.parametrize("mutate", [lambda p: p + b"garbage", lambda p: p[:-20], lambda p: p[:90] + b"x" + p[91:]])
def test_a_damaged_zstd_costs_no_other_rank(tmp_path: Path, mutate: Callable[[bytes], bytes]) -> None:
    zstandard = require_module("zstandard")
    TraceBuilder().op("aten::add", 0, 1).write(tmp_path / "rank0.json")
    text = TraceBuilder(1).op("aten::add", 0, 1).text()
    (tmp_path / "rank1.json.zst").write_bytes(mutate(zstandard.compress(text)))
    assert 0 in discover([str(tmp_path)]).chosen.ranks
    with suppress(InputError):
        assert not decode(tmp_path / "rank1.json.zst").complete


def test_zeros_between_members_are_skipped(tmp_path: Path) -> None:
    text = TraceBuilder(2, world_size=3).op("aten::add", 0, 1).text()
    path = tmp_path / "rank2.json.gz"
    path.write_bytes(gzip.compress(text[:30]) + bytes(400_000) + gzip.compress(text[30:]) + bytes(400_000))
    decoded = decode(path)
    assert decoded.header.rank == 2
    assert decoded.notes == ()


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_path_that_cannot_be_opened(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as caught:
        decode(tmp_path / name)
    assert str(tmp_path) in caught.value.message
