"""Damaged traces: short pieces of good traces and small files, with a few random mutations."""

from __future__ import annotations

import gzip
import importlib
import random
from pathlib import Path

from tracekit.read.decode.salvage import EVENT_BOUNDARY

_TOKENS = [
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\0", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80"),
    *(b"null", b"true", b"false", b"NaN", b"-Infinity", b"{}", b"[]", b'""', b"-", b"0", b"-0", b"1e5", b"1E400", b"."),
    *(b"9223372036854775807", b"18446744073709551615", b"4611686018427387904", b"1" * 40, b"0.1234567", b"5.0e-324"),
    *(b"\\u0041", b"\\u00e9", b"\\ud83d\\ude00", b"\\ud800", b"\\x", b"\\/", b'\\"', b"\x7f", b"\xe6\x97\xa5"),
    *(b'"ph": "B"', b'"ph": "M"', b'"ts": 1', b'"dur": -1', b'"args": null', b'"name": "nccl:x"', b'"Seq": 7, '),
    *(b'"Input Dims": [[1, 2]], ', b'"Collective name": "allreduce", ', b'"pid": "x", ', b'"cat": null, ', b"], "),
    *(b'"ph": "i", "name": "[memory]"', b'"Bytes": -1, ', b'"Bytes": 7, ', b'"Total Allocated": 1e5, ', b'"Device Id"'),
]


def read_text(path: Path) -> bytes:
    """Return the beginning of the text of a trace, from which excerpts are taken."""
    packed = path.read_bytes()
    return (gzip.decompress(packed) if path.suffix == ".gz" else packed)[: 8 << 20]


def excerpt(text: bytes, events: int, rng: random.Random) -> bytes:
    """Return a whole trace of about `events` events, taken from anywhere in `text`, with its layout."""
    first = text.index(b"[", text.index(b'"traceEvents"'))
    commas = [first, *(match.start(1) for match in EVENT_BOUNDARY.finditer(text, first))]
    begin = rng.randrange(max(len(commas) - events, 1))
    body = text[commas[begin] + 1 : commas[min(begin + events, len(commas) - 1)]].strip()
    return b'{"schemaVersion": 1, "traceEvents": [\n  ' + body + b'\n  ],\n  "baseTimeNanoseconds": 1000000000}'


def corpus_texts() -> list[bytes]:
    """Return the texts of `corpus/`: forms that no writer's traces have, and what once was found."""
    return [path.read_bytes() for path in sorted((Path(__file__).parent / "corpus").iterdir())]


def mutant_of(text: bytes, rng: random.Random) -> bytes:
    """Return a mutated copy, or now and then the text itself."""
    mutant = bytearray(text)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 8))):
        _mutate(mutant, rng)
    return bytes(mutant)


def packed(text: bytes, rng: random.Random) -> bytes:
    """Return the text as gzip, of one or several members, or as zstd."""
    kind = rng.randrange(3)
    if kind == 0:
        return gzip.compress(text, mtime=0)
    if kind == 1:
        cut = rng.randrange(len(text) + 1)
        between = bytes(rng.choice((0, 0, 1, 40)))
        return gzip.compress(text[:cut], mtime=0) + between + gzip.compress(text[cut:], mtime=0)
    return importlib.import_module("zstandard").compress(text)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return the content cut off, with some bytes changed, or with more behind its end."""
    kind, place = rng.randrange(3), rng.randrange(len(content) + 1)
    if kind == 0:
        return content[:place]
    if kind == 1:
        return content[:place] + rng.randbytes(rng.choice((1, 1, 4))) + content[place + 1 :]
    return content + rng.randbytes(rng.choice((1, 2, 30)))


def _mutate(text: bytearray, rng: random.Random) -> None:
    begin = rng.randrange(len(text) + 1)
    end = min(begin + rng.choice((1, 1, 2, 5, 20, 200)), len(text))
    kind = rng.randrange(7)
    if kind == 0:
        del text[begin:end]
    elif kind == 1:
        text[begin:begin] = rng.choice(_TOKENS)
    elif kind == 2:
        text[begin:end] = rng.choice(_TOKENS)
    elif kind == 3 and begin < len(text):
        text[begin] ^= 1 << rng.randrange(8)
    elif kind == 4:
        text[begin:begin] = text[begin:end]
    elif kind == 5:
        _replace_value(text, begin, rng)
    else:
        other = rng.randrange(len(text) + 1)
        text[begin:begin] = text[other : other + 300]


def _replace_value(text: bytearray, begin: int, rng: random.Random) -> None:
    """Replace the value behind the next colon. The text stays well-formed more often than after other mutations."""
    colon = text.find(b": ", begin)
    end = min((place for mark in (b",", b"}", b"\n") if (place := text.find(mark, colon)) >= 0), default=-1)
    if colon >= 0 and end > colon:
        text[colon + 2 : end] = rng.choice(_TOKENS)
