"""What tracekit adds to the pages of a merged trace, on runs with planted answers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from tests.builders import TraceBuilder, write_run
from tests.perfetto.merged import merged
from tracekit.analysis.load import load
from tracekit.analysis.report import analyze
from tracekit.analysis.summarize import StepSelection, SummaryOptions
from tracekit.model.metadata import Mesh
from tracekit.render.merged.merge import merge
from tracekit.trace_processor import Row, TraceProcessor

RANKS, STEPS, LATE_US, ELEMENTS = 3, 6, 700, 1_000_000


def rank_of_run(rank: int) -> TraceBuilder:
    """Steps of 10 ms; the last rank computes 700 us longer before each all-reduce of 4 MB, which then takes 1 ms."""
    trace = TraceBuilder(rank, RANKS)
    late = rank == RANKS - 1
    for k in range(STEPS):
        at = 10_000 * k
        arrival = at + 5_000 + (LATE_US if late else rank)
        trace.step(k, at, 10_000)
        trace.kernel("gemm", at + 10, arrival - at - 10, launched_at=at)
        trace.nccl("all_reduce", arrival, at + 6_700 - arrival, launched_at=at + 1, elements=ELEMENTS)
        trace.kernel("after", at + 6_700, 100, launched_at=at + 2)
    samples = [(at, 0, 2_000 * rank) for at in (0, 10_000, 50_000, 60_000)]
    return trace.capture(clock=samples)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("pages") / "in", [rank_of_run(rank) for rank in range(RANKS)])


@pytest.fixture
def page(trace_processor: TraceProcessor, folder: Path, tmp_path: Path) -> TraceProcessor:
    merged(trace_processor, load(folder), tmp_path)
    return trace_processor


def on_track(page: TraceProcessor, track: str, *arguments: str) -> list[Row]:
    columns = "".join(f", extract_arg(arg_set_id, 'debug.{name}') as {name}" for name in arguments)
    return page.query(
        f"select rank, name, ts, dur{columns} from tracekit_slices where track = '{track}' order by ts, rank"
    )


def test_whoever_waits_names_whom_it_waits_for(page: TraceProcessor) -> None:
    waits = on_track(page, "waits", "blamed_rank", "instance")
    assert [(row["rank"], row["name"], row["blamed_rank"]) for row in waits] == [
        (rank, "waits for rank 2", 2) for _ in range(STEPS) for rank in (0, 1)
    ]
    assert {(row["rank"], row["dur"]) for row in waits} == {(0, LATE_US * 1000), (1, (LATE_US - 1) * 1000)}
    late = on_track(page, "late", "instance", "late_ns", "excess_compute_ns")
    assert [(row["rank"], row["dur"], row["late_ns"]) for row in late] == [
        (2, (LATE_US - 1) * 1000, (LATE_US - 1) * 1000)
    ] * STEPS
    assert {row["instance"] for row in late} == {row["instance"] for row in waits}
    assert min(row["excess_compute_ns"] for row in late[1:]) > 0


def test_an_arrow_leads_from_each_wait_to_the_rank_that_is_late(page: TraceProcessor) -> None:
    rows = page.query(
        "select a.rank as from_rank, b.rank as to_rank, b.track as track, count() as n from flow "
        "join tracekit_slices a on slice_out = a.slice_id join tracekit_slices b on slice_in = b.slice_id "
        "where a.track = 'waits' group by 1, 2, 3"
    )
    # The members of an instance are one chain, in the order of their arrival.
    assert rows == [
        {"from_rank": 0, "to_rank": 1, "track": "waits", "n": STEPS},
        {"from_rank": 1, "to_rank": 2, "track": "late", "n": STEPS},
    ]


def test_a_collective_says_what_it_is(page: TraceProcessor) -> None:
    rows = page.query('select rank, kind, "group", size_bytes, dtype, instance, step from tracekit_collectives')
    assert len(rows) == RANKS * STEPS
    assert {(row["kind"], row["size_bytes"], row["dtype"]) for row in rows} == {("all_reduce", 4 * ELEMENTS, "float32")}
    ranks = {(row["instance"], row["step"]): set() for row in rows}
    for row in rows:
        ranks[row["instance"], row["step"]].add(row["rank"])
    assert list(ranks.values()) == [{0, 1, 2}] * STEPS


def test_counters_over_all_ranks(page: TraceProcessor) -> None:
    rows = page.query(
        "select t.name as name, ts, value from counter join process_counter_track t on track_id = t.id order by ts"
    )
    waiting = [row["value"] for row in rows if row["name"] == "ranks waiting"]
    assert max(waiting) == RANKS
    assert (min(waiting), waiting[-1]) == (0, 0)
    busbw = [row["value"] for row in rows if row["name"].startswith("busbw")]
    # 4 MB in 1 ms, times 2 (n - 1) / n.
    assert busbw == pytest.approx([4 * 4 / 3, 0] * STEPS)


def test_the_page_of_the_run_tells_the_findings_and_the_critical_path(page: TraceProcessor, folder: Path) -> None:
    report = analyze(load(folder))
    rows = page.query(
        "select process_track.name as track, slice.name as name, dur, "
        "extract_arg(slice.arg_set_id, 'debug.text') as text, extract_arg(slice.arg_set_id, 'debug.rank') as rank, "
        "extract_arg(slice.arg_set_id, 'debug.compute_ns') as compute_ns from slice "
        "join process_track on slice.track_id = process_track.id join process using (upid) where process.name = 'run'"
    )
    assert sorted(row["text"] for row in rows if row["text"]) == sorted(finding.text for finding in report.findings)
    assert {row["dur"] for row in rows if row["text"]} == {0}
    assert [row["name"] for row in rows if row["track"] == "steps"] == [f"step {k}" for k in range(STEPS)]
    path = [row for row in rows if row["track"] == "critical path"]
    assert report.critical_path is not None
    parts = report.critical_path.parts
    assert sum(row["dur"] for row in path) == parts["total_ns"].sum()
    of_rank_2 = parts[(parts["rank"] == 2) & (parts["kind"] == "compute")]["total_ns"].sum()
    assert sum(row["compute_ns"] or 0 for row in path if row["rank"] == 2) == of_rank_2 > 0


def test_the_run_comes_first_then_ranks_in_the_order_of_the_mesh(tmp_path: Path) -> None:
    """GIVEN ranks whose mesh counts its first dimension fastest THEN pages are in the order of coordinates."""
    ranks = []
    for rank, place in enumerate([[0, 0], [1, 0], [0, 1], [1, 1]]):
        trace = TraceBuilder(rank, 4).step(0, 0, 100).kernel("gemm", 10, 20, launched_at=0).capture()
        assert trace.metadata is not None
        mesh = Mesh(names=["dp", "tp"], shape=[2, 2], coordinate=place)
        trace.metadata = msgspec.structs.replace(trace.metadata, mesh=mesh)
        ranks.append(trace)
    written = merge(load(write_run(tmp_path / "in", ranks)), tmp_path / "run.pftrace")
    packets = Trace.FromString(written.path.read_bytes()).packet
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in packets if p.HasField("track_descriptor")}
    pages = sorted((t.sibling_order_rank, t.process.process_name) for t in tracks.values() if t.HasField("process"))
    assert [name.split(" · ")[-1] for _, name in pages] == ["run", "dp0 tp0", "dp0 tp1", "dp1 tp0", "dp1 tp1"]
    made = [t for t in tracks.values() if t.parent_uuid and tracks[t.parent_uuid].name == "analysis"]
    of_rank_0 = [t for t in made if tracks[tracks[t.parent_uuid].parent_uuid].process.pid == 1]
    in_order = sorted(of_rank_0, key=lambda track: track.sibling_order_rank)
    assert [track.name for track in in_order] == ["steps", "phases", "compute", "idle"]


def test_a_clock_s_uncertainty_is_on_its_page(page: TraceProcessor, folder: Path) -> None:
    run = load(folder)
    rows = on_track(page, "clock uncertainty", "error_ns", "offset_ns")
    expected = {clock.rank: (clock.error_ns, clock.offset_ns) for clock in run.clocks if clock.method != "none"}
    assert {row["rank"]: (row["error_ns"], row["offset_ns"]) for row in rows} == expected
    assert len(rows) == RANKS


def test_only_chosen_steps_are_on_the_tracks_that_tracekit_adds(
    trace_processor: TraceProcessor, folder: Path, tmp_path: Path
) -> None:
    options = SummaryOptions(steps=StepSelection(first=2, stop=4))
    merged(trace_processor, load(folder, options=options), tmp_path, options)
    rows = trace_processor.query("select distinct step from tracekit_collectives order by step")
    assert [row["step"] for row in rows] == [2, 3]
