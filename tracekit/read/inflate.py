"""A trace file as chunks of text, whatever it was packed with.

Comes in: the path of a regular file, plain, gzip (also of several members, cut off, or under a wrong suffix) or zstd.
Goes out: chunks of bytes of bounded size; what was wrong with the packing is a note, never a lost prefix.
"""

from __future__ import annotations

import importlib
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from tracekit.errors import InputError
from tracekit.model.notes import Note

CHUNK_BYTES = 2 << 20
_READ_BYTES = 128 << 10
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MAX_RATIO = 400  # Kineto text reaches 20; a gzip bomb 1000
_RATIO_FREE_BYTES = 256 << 20

__all__ = ["CHUNK_BYTES", "TextChunks"]


class TextChunks:
    """Iterate over the text of `path` in chunks of about `CHUNK_BYTES`.

    After the iteration `complete` says whether the packing ended as it should, and `notes` why not.
    Raises InputError when the file cannot be opened, or needs a package that is not installed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.complete = True
        self.notes: list[Note] = []

    def __iter__(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as stream:
                magic = stream.read(4)
                stream.seek(0)
                if magic.startswith(_GZIP_MAGIC):
                    yield from self._inflate_gzip(stream)
                elif magic == _ZSTD_MAGIC:
                    yield from self._inflate_zstd(stream)
                else:
                    while chunk := stream.read(CHUNK_BYTES):
                        yield chunk
        except PermissionError as error:
            raise InputError(f"{self.path}: not readable", hint="give yourself read permission on it") from error
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror or error}", hint="check the path and the disk") from error

    def _inflate_gzip(self, stream: BinaryIO) -> Iterator[bytes]:
        inflater = _gzip_inflater()
        packed = b""
        text: list[bytes] = []
        size = total = member_start = member_size = 0
        while True:
            packed = packed or stream.read(_READ_BYTES)
            try:
                piece = inflater.decompress(packed, CHUNK_BYTES)
            except Exception as error:  # zlib.error or isal's own type
                self._damaged("truncated", f"the gzip stream is damaged ({error})", stream.tell())
                rest = _readable_rest(stream, member_start, member_size)
                text.append(rest)
                size += len(rest)
                break
            if not packed and not piece:
                if not inflater.eof:
                    self._damaged("truncated", "the gzip stream is cut off", stream.tell())
                break
            packed = inflater.unconsumed_tail
            text.append(piece)
            size += len(piece)
            total += len(piece)
            member_size += len(piece)
            if total > _RATIO_FREE_BYTES and total > _MAX_RATIO * stream.tell():
                self._damaged(
                    "limit", f"it inflates to over {_MAX_RATIO} times its size: reading stopped", stream.tell()
                )
                break
            if size >= CHUNK_BYTES:
                yield b"".join(text)
                text, size = [], 0
            if inflater.eof:
                rest = (inflater.unused_data + stream.read(_READ_BYTES)).lstrip(b"\0")
                if not rest:
                    break
                if not rest.startswith(_GZIP_MAGIC):
                    self._note(
                        "encoding", "info", f"bytes after the end of the gzip stream ignored ({len(rest)} or more)"
                    )
                    break
                inflater, packed = _gzip_inflater(), rest
                member_start, member_size = stream.tell() - len(rest), 0
        if size:
            yield b"".join(text)

    def _inflate_zstd(self, stream: BinaryIO) -> Iterator[bytes]:
        try:
            zstandard = importlib.import_module("zstandard")
        except ImportError:
            raise InputError(
                f"{self.path}: packed with zstd, which needs the package zstandard", hint="pip install zstandard"
            ) from None
        try:
            with zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True) as reader:
                while chunk := reader.read(CHUNK_BYTES):
                    yield chunk
        except zstandard.ZstdError as error:
            self._damaged("truncated", f"the zstd stream is damaged ({error})", stream.tell())

    def _damaged(self, kind: str, what: str, offset: int) -> None:
        self.complete = False
        self._note(kind, "warning", f"{what} at byte {offset} of the file; what was before it is used")

    def _note(self, kind: str, severity: Any, what: str) -> None:
        self.notes.append(Note(kind=kind, severity=severity, file=self.path.name, text=f"{self.path.name}: {what}"))


def _readable_rest(stream: BinaryIO, member_start: int, known: int) -> bytes:
    """What the damaged gzip member at `member_start` still gives behind its first `known` bytes.

    An inflater that fails keeps back what it had of that call, so the last calls are made with ever less.
    """
    stream.seek(member_start)
    inflater = zlib.decompressobj(wbits=31)
    pieces: list[bytes] = []
    for width in (_READ_BYTES >> 3, 256, 1):
        while packed := stream.read(width):
            before = inflater.copy()
            try:
                piece = inflater.decompress(packed)
            except zlib.error:
                stream.seek(-len(packed), os.SEEK_CUR)
                inflater = before
                break
            pieces.append(piece[known:])
            known = max(known - len(piece), 0)
    return b"".join(pieces)


def _load_inflate() -> Callable[..., Any]:
    try:
        return importlib.import_module("isal.isal_zlib").decompressobj  # type: ignore[no-any-return]
    except ImportError:
        return zlib.decompressobj


def _gzip_inflater() -> Any:
    return _load_inflate()(wbits=31)
