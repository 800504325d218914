"""Damaged traces, on which both decoders must agree: short pieces of good traces with a few random mutations."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

from tracekit.read.decode.salvage import EVENT_BOUNDARY

__all__ = ["excerpt", "mutants", "read_text"]

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


def mutants(text: bytes, count: int, rng: random.Random) -> Iterator[bytes]:
    """Yield `text` itself, then `count` mutated copies of it."""
    yield text
    for _ in range(count):
        mutant = bytearray(text)
        for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
            _mutate(mutant, rng)
        yield bytes(mutant)


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
