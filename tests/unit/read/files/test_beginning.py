"""The first bytes of the content of a file."""

from __future__ import annotations

import gzip
import random
import zlib
from pathlib import Path

import pytest

from tracekit.read.files.beginning import BEGINNING_BYTES, beginning_of


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("size", [0, 10, 1_000_000])
def test_the_content_is_cut_at_a_limit(size: int, is_packed: bool, tmp_path: Path) -> None:
    content = random.Random(1).randbytes(size)
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(content) if is_packed else content)
    beginning = beginning_of(path)
    assert content.startswith(beginning)
    # What is packed is unpacked from as many bytes, of which a few are the header of gzip.
    assert min(size, BEGINNING_BYTES - 100) <= len(beginning) <= BEGINNING_BYTES


def test_damaged_gzip_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\x1f\x8bdamage that is no gzip")
    with pytest.raises(zlib.error):
        beginning_of(tmp_path / "file")
