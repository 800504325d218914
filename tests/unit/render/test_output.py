"""Output files that are joined from parts."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tracekit.render.output import move_to_end, new_file


@pytest.mark.parametrize("kernel_copies", [True, False])
def test_parts_are_joined_in_order_with_and_without_the_kernel_s_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel_copies: bool
) -> None:
    if not kernel_copies:

        def refuse(*_: object) -> int:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr("os.copy_file_range", refuse, raising=False)
    parts = [tmp_path / str(number) for number in range(3)]
    for number, part in enumerate(parts):
        part.write_bytes(bytes([number]) * (number * 100_000))
    with new_file(tmp_path / "whole") as stream:
        for part in parts:
            stream.write(b"<")
            move_to_end(part, stream)
            stream.write(b">")
    expected = b"".join(b"<" + bytes([number]) * (number * 100_000) + b">" for number in range(3))
    assert (tmp_path / "whole").read_bytes() == expected
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


def test_a_part_is_compressed_if_the_stream_compresses(tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_bytes(b"x" * 100_000)
    with (tmp_path / "whole.gz").open("wb") as file, gzip.GzipFile(fileobj=file, mode="wb") as stream:
        move_to_end(part, stream)
    assert gzip.decompress((tmp_path / "whole.gz").read_bytes()) == b"x" * 100_000
