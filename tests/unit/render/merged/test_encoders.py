"""A whole merged trace, written by either encoder."""

from __future__ import annotations

from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket

from tests.builders import write_run
from tests.components import require_module
from tests.perfetto.test_merged_trace import gpu_rank
from tracekit.loading.load import load
from tracekit.render.merged.merge import merge
from tracekit.render.perfetto import portable_packets, writer


def test_both_encoders_write_the_same_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN two ranks with collectives and clocks 3 ms apart WHEN merged THEN all packets are equal, in their order."""
    compiled = require_module("tracekit.render.perfetto.compiled_packets")
    run = load(write_run(tmp_path / "in", [gpu_rank(0), gpu_rank(1, skew_us=3000)]))

    def merged(encoder: writer.Encoder) -> list[TracePacket]:
        monkeypatch.setattr(writer, "chosen_encoder", lambda: encoder)
        path = merge(run, tmp_path / f"{encoder.__module__}.pftrace").path
        return list(Trace.FromString(path.read_bytes()).packet)

    expected, actual = merged(compiled.encode_track_rows), merged(portable_packets.encode_track_rows)
    assert sum(packet.HasField("track_event") for packet in expected) > 200
    assert actual == expected
