"""What kind of file a path is, by its first bytes: a trace that Perfetto reads, a run, or something else.

A file that is packed with gzip has the kind of its content.
"""

from __future__ import annotations

import os
import string
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from tracekit.read.files.beginning import BEGINNING_BYTES, unpacked

__all__ = ["MERGED", "MERGED_JSON", "PERFETTO", "FileKind", "kind_of"]

_MERGED_HEAD_BYTES = 1 << 10  # in these bytes a merged trace has its key
_GZIP = b"\x1f\x8b"
_MANIFEST = "perfetto_manifest.json"
_LONGEST_VARINT = 10


@dataclass(frozen=True, kw_only=True)
class FileKind:
    """What a file seems to be.

    Attributes:
        name: with its article, for a sentence.
        is_ready: Perfetto reads the file unchanged.
        is_run: the file is JSON or could not be read; `load` reads it, or says what is wrong with it.
    """

    name: str
    is_ready: bool = False
    is_run: bool = False


PERFETTO = FileKind(name="a trace in Perfetto's format", is_ready=True)
MERGED = FileKind(name="a merged trace", is_ready=True)
MERGED_JSON = FileKind(name="a merged trace in Chrome's format", is_ready=True)
_RUN = FileKind(name="a trace in Chrome's format", is_run=True)
_PACKED_RUN = b"\x28\xb5\x2f\xfd"  # zstd, which `load` unpacks
_TAR = (257, b"ustar")

# Other traces that Perfetto reads.
_READY = {
    b"\x10\x00\x04FxT\x16\x00": "a trace of Fuchsia",
    b"PERFILE2": "a recording of perf",
    b"# tracer:": "a trace of ftrace",
}
_NO_TRACE = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"%PDF": "a PDF document",
    b"SQLite format 3": "an SQLite database, such as Nsight Systems exports",
    b"\x7fELF": "a program",
    b"\x80\x02": "a pickle, such as a snapshot of PyTorch's memory",
    b"\x80\x03": "a pickle, such as a snapshot of PyTorch's memory",
    b"\x80\x04": "a pickle, such as a snapshot of PyTorch's memory",
    b"\x80\x05": "a pickle, such as a snapshot of PyTorch's memory",
    b"PAR1": "a Parquet table",
    b"\x93NUMPY": "an array of numpy",
    b"\xfd7zXZ": "a file packed by xz",
    b"BZh": "a file packed by bzip2",
    b"PK\x05\x06": "an empty zip archive",
}


def kind_of(path: Path) -> FileKind:
    """Return the kind of a file. One that is empty or cannot be read, and what is no regular file, counts as a run."""
    if not os.path.isfile(path):  # noqa: PTH113 - false, too, where a folder above it may not be entered
        return _RUN
    try:
        with path.open("rb") as stream:
            beginning = stream.read(BEGINNING_BYTES)
        is_whole = len(beginning) < BEGINNING_BYTES
        is_packed = beginning.startswith(_GZIP)
        if beginning.startswith(b"PK\x03\x04"):
            return _kind_of_archive(path)
        beginning = unpacked(beginning)
    except (OSError, zlib.error, zipfile.BadZipFile):
        return _RUN
    kind = _kind_of_bytes(beginning, is_whole=is_whole and len(beginning) < BEGINNING_BYTES)
    return FileKind(name=f"{kind.name}, gzipped") if is_packed and not (kind.is_ready or kind.is_run) else kind


def _kind_of_bytes(beginning: bytes, *, is_whole: bool) -> FileKind:
    from tracekit.model.metadata import MERGED_KEY

    text = beginning.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text or text.startswith((b"{", b"[", _PACKED_RUN)):
        return MERGED_JSON if f'"{MERGED_KEY}": {{'.encode() in text[:_MERGED_HEAD_BYTES] else _RUN
    if _is_packets(beginning, is_whole=is_whole):
        return MERGED if MERGED_KEY.encode() in beginning[:_MERGED_HEAD_BYTES] else PERFETTO
    for magic, name in _READY.items():
        if beginning.startswith(magic):
            return FileKind(name=name, is_ready=True)
    for magic, name in _NO_TRACE.items():
        if beginning.startswith(magic):
            return FileKind(name=name)
    if beginning.startswith(_TAR[1], _TAR[0]):
        return FileKind(name="a tar archive")
    if text[:15].lower().startswith((b"<!doctype html", b"<html")):
        return FileKind(name="an HTML page")
    is_text = not beginning.translate(None, delete=string.printable.encode() + bytes(range(0x80, 0x100)))
    return FileKind(name="text" if is_text else "data of an unknown kind")


def _is_packets(beginning: bytes, *, is_whole: bool) -> bool:
    """Return whether the bytes are a sequence of packets: each the byte 0x0a, its length, and that many bytes.

    The last packet may be cut off. If the whole file was read, at least one packet must be complete.
    """
    at, packets = 0, 0
    while at < len(beginning):
        if beginning[at] != 0x0A:
            return False
        length, shift = 0, 0
        for byte in beginning[at + 1 : at + 1 + _LONGEST_VARINT]:
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        at += 1 + shift // 7 + length
        packets += at <= len(beginning)
    return packets > 0 or not is_whole


def _kind_of_archive(path: Path) -> FileKind:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if _MANIFEST in names:
        return FileKind(name="an archive of traces", is_ready=True)
    is_torchs = any(name.endswith("/data.pkl") for name in names)
    return FileKind(name="a file of torch.save" if is_torchs else "a zip archive")
