"""Decoded traces laid aside: what comes back is what was decoded, once."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.places import DATA
from tracekit.read.cache.spool import Shelf
from tracekit.read.decode.decoder import decode

DDP = DATA / "ddp_slow_rank"


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    elif is_dataclass(one):
        for field in fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name))
    else:
        assert one == other


def traces(real_traces: Path) -> list[Path]:
    return [*sorted(DATA.rglob("rank-*.json.gz")), *sorted((real_traces / "dlrm_8xV100").glob("*.json*"))[:2]]


def test_a_trace_comes_back_as_it_was_decoded(real_traces: Path, tmp_path: Path) -> None:
    shelf = Shelf(folder=tmp_path)
    decoded = {path: decode(path, details=path.stat().st_size % 2 == 0) for path in traces(real_traces)}
    assert {len(trace.events.details) > 0 for trace in decoded.values()} == {True, False}
    for path, trace in decoded.items():
        shelf.keep(path, trace, ("made of it", path.name))
    for path, trace in decoded.items():
        taken = shelf.take(path)
        assert taken is not None
        assert_same(trace, taken[0])
        assert taken[1] == ("made of it", path.name)


def test_what_was_taken_is_gone_and_leaves_no_file(tmp_path: Path) -> None:
    shelf = Shelf(folder=tmp_path)
    (path, *_) = sorted(DDP.rglob("rank-*.json.gz"))
    shelf.keep(path, decode(path))
    assert shelf.take(path) is not None
    assert shelf.take(path) is None
    assert list(tmp_path.iterdir()) == []


def test_no_room_costs_nothing_but_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a disk that is full THEN nothing is laid aside, and no half of it either."""
    shelf = Shelf(folder=tmp_path)
    (path, *_) = sorted(DDP.rglob("rank-*.json.gz"))

    def full(*_: object) -> None:
        (tmp_path / "half").touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tracekit.read.cache.spool._write", full)
    shelf.keep(path, decode(path))
    assert shelf.take(path) is None
    assert [file.name for file in tmp_path.iterdir()] == ["half"]


@pytest.mark.parametrize(
    "start_ns",
    [
        [],
        [0],
        [-(2**63), 2**63 - 1],
        [2**63 - 1, 2**63 - 256],
        [-5, 250],
        [-5, 251],
        [7, 7 + 2**32 - 1],
        [7, 7 + 2**32],
    ],
)
def test_numbers_of_any_range_come_back(start_ns: list[int], tmp_path: Path) -> None:
    shelf = Shelf(folder=tmp_path)
    (path, *_) = sorted(DDP.rglob("rank-*.json.gz"))
    trace = decode(path)
    kept = replace(trace, events=replace(trace.events, start_ns=np.array(start_ns, dtype=np.int64)))
    shelf.keep(path, kept)
    taken = shelf.take(path)
    assert taken is not None
    assert_same(kept, taken[0])
