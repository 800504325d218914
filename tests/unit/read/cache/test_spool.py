"""The spool of decoded traces: a trace comes back as it was decoded, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.places import DATA
from tests.unit.read.decode.decoders import differences
from tracekit.read.cache.cache_dir import DecodedSpool
from tracekit.read.decode.decoder import decode

DDP = DATA / "ddp_slow_rank"


def traces(real_traces: Path) -> list[Path]:
    return [*sorted(DATA.rglob("rank-*.json.gz")), *sorted((real_traces / "dlrm_8xV100").glob("*.json*"))[:2]]


def test_a_trace_comes_back_as_it_was_decoded(real_traces: Path, tmp_path: Path) -> None:
    spool = DecodedSpool(folder=tmp_path)
    decoded = {path: decode(path, extra_args=path.stat().st_size % 2 == 0) for path in traces(real_traces)}
    assert {len(trace.events.extra_args) > 0 for trace in decoded.values()} == {True, False}
    for path, trace in decoded.items():
        spool.put(path, (trace, path.name))
    for path, trace in decoded.items():
        actual, name = spool.pop(path)
        assert differences(actual, trace) == []
        assert actual.events.start_ns.flags.writeable
        assert name == path.name


def test_a_trace_comes_back_once_and_leaves_no_file(tmp_path: Path) -> None:
    spool = DecodedSpool(folder=tmp_path)
    (path, *_) = sorted(DDP.rglob("rank-*.json.gz"))
    spool.put(path, decode(path))
    assert spool.pop(path) is not None
    assert spool.pop(path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_costs_no_more_than_decoding_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a disk that fills up while a trace is written THEN none of it is left, and nothing is raised."""
    spool = DecodedSpool(folder=tmp_path)
    (path, *_) = sorted(DDP.rglob("rank-*.json.gz"))

    def fill_up(_: object, stream: Any, **__: object) -> None:
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tracekit.read.cache.cache_dir.pickle.dump", fill_up)
    spool.put(path, decode(path))
    assert list(tmp_path.iterdir()) == []
    assert spool.pop(path) is None
