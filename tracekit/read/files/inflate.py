"""The text of a trace file: plain, gzip or zstd, on a disk or in a store.

Gzip may have several members, be cut off, or be under a wrong suffix. The text in front of damage is always read, and
no more of it than the limits allow.
"""

from __future__ import annotations

import gzip
import importlib
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from tracekit.errors import InputError
from tracekit.limits import Limits, limits
from tracekit.model.notes import Note
from tracekit.read.files.storage import TracePath

CHUNK_BYTES = 2 << 20
KEYS_BEHIND_BYTES = 256 << 10  # of the end of a text: room for the process groups of some thousand ranks
MAX_TAIL_SEARCH_BYTES = 32 << 20  # packed; reading the end of a larger file takes over half a second
_READ_BYTES = 128 << 10
_GZIP_MAGIC = b"\x1f\x8b"
_ODD_GZIP_FLAGS = 0xE2  # reserved flags, and the one for a checksum of the header
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_USUAL_RATIO = 13
_FIRST_FEED_BYTES = 4 << 10  # of a member, which may be a small one; what is fed beyond its end is copied
_ZEROS = re.compile(rb"\0*")
_UNCHECKED_BYTES = 256 << 20

BEGINNING_BYTES = 1 << 16
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, kw_only=True)
class CutOff:
    """Why the text ends too early: a kind of note, and what happened at which byte of the file.

    Attributes:
        intact: The text up to there is as it was written. A checksum that fails does not tell where the damage is.
        checked_bytes: How much text the gzip members in front of a damaged one have: their checksums are right.
    """

    kind: str
    what: str
    intact: bool = True
    checked_bytes: int = 0


class TextChunks:
    """Iterates over the text of `path` in chunks of about `chunk_bytes` (default: `CHUNK_BYTES`).

    With `checked_by`, the damage that a first reading has met, the text ends in front of the damaged gzip member.

    Raises InputError when the file cannot be opened, or needs a package that is not installed.

    Attributes:
        is_packed: Known once the iteration has begun.
        cut_off: After the iteration: why the text ended too early, None if it did not.
        notes: After the iteration: about damage that cost no text.
    """

    def __init__(self, path: TracePath, chunk_bytes: int | None = None, *, checked_by: CutOff | None = None) -> None:
        self._checked_by = checked_by
        self.path = path
        self.chunk_bytes = CHUNK_BYTES if chunk_bytes is None else chunk_bytes
        self.is_packed = False
        self.cut_off: CutOff | None = None
        self.notes: list[Note] = []

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._chunks()
        except PermissionError as error:
            reason, hint = "not readable", "give yourself read permission on it"
            raise InputError(f"{self.path}: {reason}", hint=hint, reason=reason, kind="permission") from error
        except FileNotFoundError as error:
            reason, hint = "no such file on the machine that reads it", "workers see shared folders and URLs alone"
            raise InputError(f"{self.path}: {reason}", hint=hint, reason=reason) from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(f"{self.path}: {reason}", hint="check the path and the disk", reason=reason) from error

    def _chunks(self) -> Iterator[bytes]:
        """Yield the text up to a limit."""
        allowed, total = limits(), 0
        with self.path.open("rb") as stream:
            magic = stream.read(4)
            stream.seek(0)
            self.is_packed = magic.startswith(_GZIP_MAGIC) or magic == _ZSTD_MAGIC
            if magic.startswith(_GZIP_MAGIC):
                chunks = self._inflate_gzip(stream)
            elif magic == _ZSTD_MAGIC:
                chunks = self._inflate_zstd(stream)
            else:
                chunks = iter(lambda: stream.read(self.chunk_bytes), b"")
            for chunk in chunks:
                total += len(chunk)
                if self._checked_by is not None and total >= (checked_bytes := self._checked_by.checked_bytes):
                    yield chunk[: len(chunk) - (total - checked_bytes)]
                    what = f"{self._checked_by.what}; what is read ends before that member,"
                    self.cut_off = replace(self._checked_by, what=what, intact=True)
                    return
                yield chunk
                if (reached := _reached_limit(allowed, total, stream)) is not None:
                    if self.cut_off is None:  # else this is what is readable behind damage
                        self._cut_off_at("limit", reached, stream.tell())
                    return

    def _inflate_gzip(self, stream: BinaryIO) -> Iterator[bytes]:
        inflater = _gzip_inflater()
        read_bytes = max(self.chunk_bytes // _USUAL_RATIO, 512)
        packed = _Unread(stream)
        text: list[bytes] = []
        size = member_start = member_size = checked_bytes = 0
        feed_bytes = _FIRST_FEED_BYTES
        while True:
            fed = packed.take(min(feed_bytes, read_bytes))
            feed_bytes = min(2 * feed_bytes, read_bytes)
            try:
                piece = inflater.decompress(fed, self.chunk_bytes)
            except Exception as error:  # zlib.error or isal's own type
                what = f"the gzip stream is damaged ({error}) at byte {stream.tell()} of the file"
                self.cut_off = CutOff(kind="truncated", what=what, intact=False, checked_bytes=checked_bytes)
                rest = _readable_rest(stream, member_start, member_size)
                text.append(rest)
                size += len(rest)
                break
            if not fed and not piece:
                if not inflater.eof:
                    self._cut_off_at("truncated", "the gzip stream is cut off", stream.tell())
                break
            packed.give_back(len(inflater.unused_data if inflater.eof else inflater.unconsumed_tail))
            text.append(piece)
            size += len(piece)
            member_size += len(piece)
            if 2 * size >= self.chunk_bytes:
                yield b"".join(text)  # of one piece, this is that piece
                text, size = [], 0
            if inflater.eof:
                magic = packed.skip_zeros(len(_GZIP_MAGIC))
                if not magic:
                    break
                if magic != _GZIP_MAGIC:
                    self._note(
                        "encoding", "info", f"bytes after byte {packed.tell()}, the end of the gzip stream, ignored"
                    )
                    break
                inflater, feed_bytes = _gzip_inflater(), _FIRST_FEED_BYTES
                checked_bytes += member_size
                member_start, member_size = packed.tell(), 0
        if size:
            yield b"".join(text)

    def _inflate_zstd(self, stream: BinaryIO) -> Iterator[bytes]:
        try:
            zstandard = importlib.import_module("zstandard")
        except ImportError:
            reason = "packed with zstd, which needs the package zstandard"
            raise InputError(f"{self.path}: {reason}", hint="pip install zstandard", reason=reason) from None
        try:
            with zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True, closefd=False) as reader:
                while chunk := reader.read(self.chunk_bytes):
                    yield chunk
        except zstandard.ZstdError as error:
            self._cut_off_at("truncated", f"the zstd stream is damaged ({error})", stream.tell(), intact=False)

    def _cut_off_at(self, kind: str, what: str, offset: int, *, intact: bool = True) -> None:
        self.cut_off = CutOff(kind=kind, what=f"{what} at byte {offset} of the file", intact=intact)

    def _note(self, kind: str, severity: Any, what: str) -> None:
        self.notes.append(Note(id=kind, severity=severity, file=self.path.name, text=f"{self.path.name}: {what}"))


class _Unread:
    """The bytes of a stream that are not yet used. Members of 20 bytes each must not cost a copy of all behind them."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._read = b""
        self._used = 0

    def take(self, size: int) -> bytes:
        """Return at most `size` bytes, none at the end."""
        if self._used == len(self._read):
            self._read, self._used = self._stream.read(_READ_BYTES), 0
        taken = self._read[self._used : self._used + size]
        self._used += len(taken)
        return taken

    def give_back(self, size: int) -> None:
        """Let the last `size` bytes that were taken be unused again."""
        self._used -= size

    def skip_zeros(self, size: int) -> bytes:
        """Use all zeros that come next. Return the `size` bytes behind them, which stay unused; fewer at the end."""
        while True:
            zeros = _ZEROS.match(self._read, self._used)
            self._used = zeros.end() if zeros else self._used
            if len(self._read) - self._used < size and (more := self._stream.read(_READ_BYTES)):
                self._read, self._used = self._read[self._used :] + more, 0
                continue
            return self._read[self._used : self._used + size]

    def tell(self) -> int:
        """Return the offset in the file of the first unused byte."""
        return self._stream.tell() - len(self._read) + self._used


class UnreadableText(Exception):  # noqa: N818 - not for users: `TextChunks` says what is wrong
    """The file is damaged, or cannot be read for another reason."""


class TextStream:
    """The text of an undamaged file, read into a buffer that is reused, which is faster than `TextChunks`."""

    def __init__(self, packed: BinaryIO, text: Any) -> None:
        self._packed = packed
        self._text = text
        self._limits = limits()
        self._size = 0

    def readinto(self, buffer: memoryview) -> int:
        """Return how many bytes were read, 0 at the end. Raises UnreadableText."""
        try:
            count = int(self._text.readinto(buffer))
        except MemoryError:
            raise
        except Exception as error:  # of zlib, isal, zstandard, the file system
            raise UnreadableText from error
        self._size += count
        if _reached_limit(self._limits, self._size, self._packed) is not None:
            raise UnreadableText
        return count

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes, none at the end. Raises UnreadableText."""
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(memoryview(buffer))])


@contextmanager
def open_text(path: TracePath) -> Iterator[TextStream]:
    """Open the text of `path`, plain or packed. Raises UnreadableText when it cannot be opened."""
    with ExitStack() as opened:
        try:
            packed = opened.enter_context(path.open("rb"))
            magic = packed.read(4)
            packed.seek(0)
            text: Any = packed
            if magic.startswith(_GZIP_MAGIC):
                if magic[3:] and magic[3] & _ODD_GZIP_FLAGS:  # zlib and isal treat them differently
                    raise UnreadableText
                unpacked = opened.enter_context(_gzip_file(packed))
                # A GzipFile reads into new bytes and copies them; the stream below it reads into our buffer.
                text = getattr(unpacked, "_buffer", unpacked)
            elif magic == _ZSTD_MAGIC:
                zstd = importlib.import_module("zstandard").ZstdDecompressor()
                text = opened.enter_context(zstd.stream_reader(packed, read_across_frames=True, closefd=False))
        except (OSError, ImportError) as error:
            raise UnreadableText from error
        yield TextStream(packed, text)


def _reached_limit(allowed: Limits, text_bytes: int, packed: BinaryIO) -> str | None:
    """Return what a note says of the limit that the text of a file has reached; None if it has reached none.

    `packed`: the file, read as far as the text was.
    """
    if text_bytes > allowed.text_bytes:
        return f"longer than is read ({allowed.named('text_bytes')}): reading stopped"
    if text_bytes > _UNCHECKED_BYTES and text_bytes > allowed.ratio * packed.tell():
        return f"it inflates to over {allowed.ratio} times its size ({allowed.named('ratio')}): reading stopped"
    return None


def last_bytes(path: TracePath, width: int) -> bytes:
    """Return the last `width` bytes of the text of `path`; none if inflating all of it would take too long."""
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
            size = stream.seek(0, os.SEEK_END)
            if not magic.startswith(_GZIP_MAGIC) and magic != _ZSTD_MAGIC:
                stream.seek(max(0, size - width))
                return stream.read()
    except OSError:
        return b""
    tail = b""
    if size <= MAX_TAIL_SEARCH_BYTES:
        for chunk in TextChunks(path):
            tail = (tail + chunk)[-width:]
    return tail


def _readable_rest(stream: BinaryIO, member_start: int, known: int) -> bytes:
    """Return the text of the damaged gzip member at `member_start` behind its first `known` bytes.

    An inflater that fails loses the output of that call. So the input comes in ever smaller pieces.
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


def _gzip_file(packed: BinaryIO) -> Any:
    try:
        return importlib.import_module("isal.igzip").IGzipFile(fileobj=packed)
    except ImportError:
        return gzip.GzipFile(fileobj=packed)


def _gzip_inflater() -> Any:
    try:
        return importlib.import_module("isal.isal_zlib").decompressobj(wbits=31)
    except ImportError:
        return zlib.decompressobj(wbits=31)


def beginning_of(path: Path) -> bytes:
    """Return at most `BEGINNING_BYTES` of a file, unpacked if it is gzip. Raises OSError, and zlib.error for damage."""
    with path.open("rb") as stream:
        return unpacked(stream.read(BEGINNING_BYTES))


def unpacked(beginning: bytes) -> bytes:
    """Return the first bytes of the content of a file that begins so. Raises zlib.error."""
    if not beginning.startswith(_GZIP):
        return beginning
    return zlib.decompressobj(wbits=31).decompress(beginning, BEGINNING_BYTES)
