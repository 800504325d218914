"""Encode random slices with both encoders, and drive the compiled one with columns that do not fit together.

    python -m tests.fuzz.encoder --minutes 5
    python -m tests.fuzz.sanitized build/sanitized tests.fuzz.encoder --minutes 5

Packets of good slices are equal. Of other columns ValueError comes, or packets; never memory of others.
"""

from __future__ import annotations

import os
import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.fuzz.sanitized import use_sanitized

use_sanitized()

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace  # noqa: E402

from tests.fuzz.fuzzing import Finding, fuzz, parser  # noqa: E402
from tracekit.limits import VARIABLE  # noqa: E402
from tracekit.render.perfetto import compiled_packets, portable_packets  # noqa: E402
from tracekit.render.perfetto.extra_args import ExtraArgsEncoder  # noqa: E402
from tracekit.render.perfetto.fields import Interned, fields_of  # noqa: E402
from tracekit.render.slices import Slices  # noqa: E402

_TEMPLATE = (b"\x0a", b"\x08", b"\x50\x02\x5a", b"\x48\x01", b"\x48\x02")
_DTYPES = ("i4", "i8", "u8", "u1", "?", "f8", ">i8", ">i4", "f4", "i2", "M8[ns]", "c16", "S4", "O")
_EXTREMES = (0, 1, -1, 2, 7, 127, 128, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63), 1 << 62)
_REFUSALS = (ValueError, TypeError, BufferError, MemoryError)


def check(rng: random.Random, _: Path) -> str:
    if rng.random() < 0.3:
        with patch.dict(os.environ, {VARIABLE: f"lanes={rng.choice((1, 2, 3, 200))}"}):
            _compare(_slices(rng))
        return "slices"
    try:
        _drive(rng)
    except _REFUSALS:
        return "refused columns"
    return "columns that fit"


def _slices(rng: random.Random) -> Slices:
    count, range_ns = rng.choice((1, 2, 5, 40, 700)), rng.choice((3, 50, 10**6, 1 << 60))
    chance = np.random.default_rng(rng.getrandbits(32))
    strings = ["aten::mm", "", "\0\ud800é", '{"a": 1}', '{"b": [1, {"c": null}],\n"d": "x"}', "n" * 300]
    extra = chance.choice([-1, 3, 4], count).astype(np.int32)
    return Slices(
        start_ns=chance.integers(0, range_ns, count),
        duration_ns=chance.integers(0, range_ns, count) * chance.integers(0, 2, count),
        name=chance.choice([0, 1, 2, 5], count).astype(np.int32),
        category=chance.integers(0, 2, count).astype(np.int32),
        strings=strings,
        extra_args=extra if rng.random() < 0.7 else None,
    )


def _compare(slices: Slices) -> None:
    both = []
    for encode in (portable_packets.encode_track_rows, compiled_packets.encode_track_rows):
        interned = Interned()
        fields, extra = fields_of(slices, interned), ExtraArgsEncoder(interned).encode(slices)
        track_rows = encode(slices, fields, extra, 2)
        packets = [Trace.FromString(b"".join(track_row.packets)) for track_row in track_rows]
        both.append(([(track_row.start_ns, track_row.end_ns, track_row.slices) for track_row in track_rows], packets))
    if both[0] != both[1]:
        raise Finding("the encoders differ")


def _drive(rng: random.Random) -> None:
    """Give the encoder columns some of which are mutated, and change some while it writes."""
    rows = rng.choice((0, 1, 3, 30, 30))
    int32, int64 = np.arange(rows, dtype=np.int32), np.arange(rows, dtype=np.int64) * 10
    content = rng.randbytes(rng.choice((0, 1, 30, 70_000, 400_000)))
    sizes = np.full(rows, rng.choice((0, 1, 3)), dtype=np.int64)
    columns: dict[str, Any] = {
        "order": int32.copy(),
        "start_ns": int64.copy(),
        "duration_ns": int64 * 0 + rng.choice((0, 5, 25)),
        "rows": rng.choice((None, int32.copy())),
        "ids": int32.copy(),
        "starts": int64 * 0,
        "sizes": sizes,
        "content": content,
        "values": rng.choice((int64.view(np.uint64), int32.copy())),
        "numbers": rng.choice((None, np.arange(rows, dtype=np.uint64))),
        "present": rng.choice((None, np.ones(rows, dtype=np.bool_))),
    }
    for name in rng.sample(list(columns), rng.choice((0, 0, 0, 1, 2, 4))):
        columns[name] = _mutated(columns[name], rng)
    module = sys.modules["tracekit.render.perfetto._encoder"]
    times = {name: columns[name] for name in ("order", "start_ns", "duration_ns")}
    with suppress(*_REFUSALS):
        module.lanes(**times, max_depth=rng.choice((0, 1, 2, 512)), max_lanes=rng.choice((0, 1, 3, 200)))
    prefix = rng.randbytes(rng.choice((1, 3, 16, 17)))
    field = (
        rng.choice((b"", b"\x22")),
        prefix,
        *(columns[n] for n in ("values", "numbers", "present")),
        rng.random() < 0.3,
    )
    extra = tuple(columns[name] for name in ("ids", "starts", "sizes", "content"))
    packets = module.Packets(
        **times,
        rows=columns["rows"],
        fields=[field] * rng.choice((0, 1, 3, 40)),
        extra_args=rng.choice((None, extra)),
        template=_TEMPLATE,
    )
    changeable = [c for c in columns.values() if isinstance(c, np.ndarray) and c.shape[:1] > (0,) and c.flags.writeable]
    for changed in rng.sample(changeable, min(len(changeable), rng.choice((0, 1, 1, 2)))):
        if changed.dtype.kind in "iu":
            _change(changed, rng)
        elif changed.dtype.kind == "b":
            changed.view(np.uint8)[:] = rng.randrange(256)
    for block in packets:
        assert isinstance(block, bytes)


def _mutated(column: Any, rng: random.Random) -> Any:
    kind = rng.randrange(7)
    if not isinstance(column, np.ndarray):
        return rng.choice((None, b"", b"abc", 5, "text", np.zeros(3, dtype=np.int64), rng.randbytes(40)))
    if kind == 0:
        return column[: rng.randrange(len(column) + 1)]
    if kind == 1:
        return np.zeros(len(column), dtype=rng.choice(_DTYPES))
    if kind == 2:  # at any byte
        return np.frombuffer(b"-" * rng.randrange(1, 8) + column.tobytes(), dtype=np.uint8)[1:]
    if kind == 3:
        return np.frombuffer(b"-" + column.tobytes(), dtype=column.dtype, offset=1)
    if kind == 4:
        return rng.choice((column[::-1], column[::2], column.reshape(1, -1), np.array(3, dtype=column.dtype)))
    if kind == 5:
        return column.astype(column.dtype.newbyteorder())
    changed = column.copy()
    if len(changed) and changed.dtype.kind in "iu":
        for _ in range(rng.choice((1, 2, 9))):
            _change(changed, rng)
    return changed


def _change(column: Any, rng: random.Random) -> None:
    """Set one item, or all, to a number at an edge or to one that may fit."""
    limits = np.iinfo(column.dtype)
    number = rng.choice((rng.choice(_EXTREMES), rng.randrange(40), rng.randrange(400_000)))
    place = slice(None) if rng.random() < 0.5 else rng.randrange(len(column))
    column[place] = min(max(number, limits.min), limits.max)


if __name__ == "__main__":
    sys.exit(fuzz("encoder", check, parser(__doc__).parse_args()))
