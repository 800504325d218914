"""A server has a page in the merged trace, without steps."""

from __future__ import annotations

from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from tests.builders import write_run
from tests.unit.rpc.test_calls import worker
from tracekit.loading.load import load
from tracekit.render.merged.merge import merge


def test_a_server_has_no_steps_on_its_page(tmp_path: Path) -> None:
    run = load(write_run(tmp_path / "in", [worker("trainer", 0, steps=(0, 100)), worker("ps", 1)]))
    merged = merge(run, tmp_path / "run.pftrace")
    packets = Trace.FromString(merged.path.read_bytes()).packet
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in packets if p.HasField("track_descriptor")}
    pages = {
        track.uuid: track.name for track in tracks.values() if track.name.startswith("rank") and " · " in track.name
    }
    of_page: dict[str, set[str]] = {name: set() for name in pages.values()}
    for track in tracks.values():
        if track.parent_uuid in tracks and tracks[track.parent_uuid].name == "analysis":
            of_page[pages[tracks[track.parent_uuid].parent_uuid]].add(track.name)
    assert {"rank 0 steps", "idle"} <= next(names for page, names in of_page.items() if page.startswith("rank 0"))
    of_server = next(names for page, names in of_page.items() if page.startswith("rank 1"))
    assert of_server.isdisjoint({"rank 1 steps", "idle"})
