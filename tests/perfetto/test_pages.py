"""Tracks that tracekit adds to the pages of a merged trace, on runs with known answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackDescriptor

from tests.builders import TraceBuilder, write_run
from tests.perfetto.merged import assert_the_counter_counts_open_waits, assert_views_are_the_reports, merged
from tracekit.findings.finding import Finding
from tracekit.loading.load import load
from tracekit.model.metadata import Mesh
from tracekit.render.merged.merge import merge
from tracekit.report.report import analyze
from tracekit.trace_processor import Row, TraceProcessor, views_sql

RANKS, STEPS, LATE_US, ELEMENTS = 3, 6, 700, 1_000_000


def rank_of_run(rank: int, *, late: int = RANKS - 1) -> TraceBuilder:
    """Steps of 10 ms. The rank `late` computes 700 us longer before each all-reduce of 4 MB, which then takes 1 ms."""
    trace = TraceBuilder(rank, RANKS)
    for k in range(STEPS):
        at = 10_000 * k
        arrival = at + 5_000 + (LATE_US if rank == late else rank)
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


def test_waits_name_the_rank_that_is_late(page: TraceProcessor) -> None:
    waits = on_track(page, "waits", "blamed_rank", "instance")
    assert [(row["rank"], row["name"], row["blamed_rank"]) for row in waits] == [
        (rank, "waits for rank 2", 2) for _ in range(STEPS) for rank in (0, 1)
    ]
    assert {(row["rank"], row["dur"]) for row in waits} == {(0, LATE_US * 1000), (1, (LATE_US - 1) * 1000)}
    late = [row for row in on_track(page, "late", "instance", "late_ns", "excess_compute_ns") if row["dur"]]
    assert [(row["rank"], row["dur"], row["late_ns"]) for row in late] == [
        (2, (LATE_US - 1) * 1000, (LATE_US - 1) * 1000)
    ] * STEPS
    assert {row["instance"] for row in late} == {row["instance"] for row in waits}
    assert min(row["excess_compute_ns"] for row in late[1:]) > 0


ARROWS = (
    "select a.rank as from_rank, a.track as of, b.rank as to_rank, b.track as on_track, b.name as name, count() as n "
    "from flow join tracekit_slices a on slice_out = a.slice_id join tracekit_slices b on slice_in = b.slice_id "
    "where a.track in ('waits', 'late') group by 1, 2, 3, 4, 5 order by 1, 2, 3"
)


@pytest.mark.parametrize("late", [0, 1, 2])
def test_an_arrow_leads_from_each_wait_to_the_rank_that_is_late(
    trace_processor: TraceProcessor, tmp_path: Path, late: int
) -> None:
    """GIVEN any rank that is late THEN the members of an instance are one chain, in the order of their arrival."""
    ranks = [rank_of_run(rank, late=late) for rank in range(RANKS)]
    merged(trace_processor, load(write_run(tmp_path / "in", ranks)), tmp_path / "out")
    first, second = (rank for rank in range(RANKS) if rank != late)
    assert trace_processor.query(ARROWS) == [
        {
            "from_rank": first,
            "of": "waits",
            "to_rank": second,
            "on_track": "waits",
            "name": f"waits for rank {late}",
            "n": STEPS,
        },
        {"from_rank": second, "of": "waits", "to_rank": late, "on_track": "late", "name": "arrives", "n": STEPS},
    ]


def test_a_rank_that_is_late_because_it_waited_has_an_arrow_from_its_wait(
    trace_processor: TraceProcessor, tmp_path: Path
) -> None:
    """GIVEN rank 2 late to a collective with rank 1, which is therefore late to one with rank 0 WHEN merged THEN arrows
    lead from rank 0 over rank 1 to rank 2."""
    starts = {0: [(10, 60, [0, 1])], 1: [(20, 30, [1, 2]), (55, 15, [0, 1])], 2: [(50, 1, [1, 2])]}
    ranks = []
    for rank, calls in starts.items():
        trace = TraceBuilder(rank, 3).step(0, 0, 1000).step(1, 1000, 1000)
        for at, took, group in calls:
            name = f"group {group}"
            trace.kernel("gemm", at * 10 - 50, 40, launched_at=at * 10 - 60)
            trace.nccl("all_reduce", at * 10, took * 10, launched_at=at * 10 - 59, group=group, description=name)
        ranks.append(trace.capture(clock=[(at, 0, 1) for at in (0, 1, 1999, 2000)]))
    merged(trace_processor, load(write_run(tmp_path / "in", ranks)), tmp_path / "out")
    arrows = [(row["from_rank"], row["to_rank"], row["name"]) for row in trace_processor.query(ARROWS)]
    assert arrows == [(0, 1, "arrives"), (1, 1, "arrives"), (1, 2, "arrives")]


def test_without_comparable_clocks_there_are_no_waits(trace_processor: TraceProcessor, tmp_path: Path) -> None:
    ranks = []
    for rank in (0, 1):
        trace = TraceBuilder(rank, 2, host=f"node{rank}").step(0, 0, 10_000)
        trace.kernel("gemm", 10, 4_000 + 500 * rank, launched_at=0)
        trace.nccl("broadcast", 5_000 + 500 * rank, 2_000 - 500 * rank, launched_at=1)
        trace.capture()
        assert trace.metadata is not None
        trace.metadata = replace(trace.metadata, host_id=f"{rank}" * 16)
        ranks.append(trace)
    merged(trace_processor, load(write_run(tmp_path / "in", ranks)), tmp_path / "out")
    tracks = {row["track"] for row in trace_processor.query("select distinct track from tracekit_slices")}
    assert "compute" in tracks
    assert tracks.isdisjoint({"waits", "late"})
    assert trace_processor.query("select count() as n from counter") == [{"n": 0}]


def test_collectives_have_kind_size_type_and_instance(page: TraceProcessor) -> None:
    rows = page.query('select rank, kind, "group", size_bytes, dtype, instance, step from tracekit_collectives')
    assert len(rows) == RANKS * STEPS
    assert {(row["kind"], row["size_bytes"], row["dtype"]) for row in rows} == {("all_reduce", 4 * ELEMENTS, "float32")}
    ranks = {(row["instance"], row["step"]): set() for row in rows}
    for row in rows:
        ranks[row["instance"], row["step"]].add(row["rank"])
    assert list(ranks.values()) == [{0, 1, 2}] * STEPS


def test_counters_over_all_ranks(page: TraceProcessor) -> None:
    waiting = [row["ranks"] for row in page.query("select ranks from tracekit_ranks_waiting order by ts")]
    assert waiting == [1, 2, 0] * STEPS  # ranks 0 and 1 for rank 2
    busbw = page.query("select * from tracekit_busbw order by ts")
    assert {row["process_group"] for row in busbw} == {"dp"}
    # 4 MB in 1 ms, times 2 (n - 1) / n.
    assert [row["busbw_gb_per_s"] for row in busbw] == pytest.approx([4 * 4 / 3, 0] * STEPS)
    assert [row["dur"] for row in busbw if row["busbw_gb_per_s"]] == [1_000_000] * STEPS
    units = page.query("select distinct rank, counter, unit from tracekit_counters order by counter")
    assert [tuple(row.values()) for row in units] == [(None, "busbw · dp", "GB/s"), (None, "ranks waiting", "ranks")]
    tracks = page.query("select name from tracekit_tracks where rank is null order by track_id")
    assert {row["name"] for row in tracks} == {"findings", "steps", "critical path", "ranks waiting", "bus bandwidth"}
    assert_the_counter_counts_open_waits(page)


def test_the_page_of_the_run_has_the_findings_and_the_critical_path(page: TraceProcessor, folder: Path) -> None:
    report = analyze(load(folder))
    rows = page.query(
        "select track, name, dur, extract_arg(arg_set_id, 'debug.text') as text, "
        "extract_arg(arg_set_id, 'debug.rank') as rank, extract_arg(arg_set_id, 'debug.compute_ns') as compute_ns "
        "from tracekit_run_slices"
    )
    assert sorted(row["text"] for row in rows if row["text"]) == sorted(finding.text for finding in report.findings)
    assert [row["name"] for row in rows if row["track"] == "steps"] == [f"step {k}" for k in range(STEPS)]
    path = [row for row in rows if row["track"] == "critical path"]
    assert report.critical_path is not None
    parts = report.critical_path.parts
    assert sum(row["dur"] for row in path) == parts["total_ns"].sum()
    of_rank_2 = parts[(parts["rank"] == 2) & (parts["kind"] == "compute")]["total_ns"].sum()
    assert sum(row["compute_ns"] or 0 for row in path if row["rank"] == 2) == of_rank_2 > 0


def test_findings_hide_neither_each_other_nor_their_text(
    trace_processor: TraceProcessor, folder: Path, tmp_path: Path
) -> None:
    """GIVEN findings of the run, two of them of one step THEN they are stacked on one track, each as long as its step
    or as all steps."""
    run = load(folder)
    report = analyze(run)
    texts = [(None, "of all steps"), (None, "of all, too"), (2, "of one step"), (2, "of the same"), (4, "later")]
    findings = tuple(
        Finding(id="straggler", severity="warning", rank=None, step=step, text=text, saving_ns=None, evidence={})
        for step, text in texts
    )
    written = merge(run, tmp_path / "run.pftrace", report=replace(report, findings=findings))
    trace_processor.load(written.path.read_bytes())
    trace_processor.ask(views_sql())
    rows = trace_processor.query(
        "select text, step, depth, track_id, slice.ts as ts, slice.dur as dur, slice.name as name "
        "from tracekit_findings join slice using (slice_id) order by slice_id"
    )
    assert [(row["text"], row["depth"]) for row in rows] == [
        (text, depth) for (_, text), depth in zip(texts, (0, 1, 2, 3, 2), strict=True)
    ]
    assert len({row["track_id"] for row in rows}) == 1
    assert [row["name"] for row in rows] == [f"warning: {text}" for _, text in texts]
    steps = trace_processor.query("select name, ts, dur from tracekit_run_slices where track = 'steps' order by ts")
    spans = {row["name"]: (row["ts"], row["dur"]) for row in steps}
    whole = (steps[0]["ts"], steps[-1]["ts"] + steps[-1]["dur"] - steps[0]["ts"])
    assert [(row["ts"], row["dur"]) for row in rows] == [spans.get(f"step {row['step']}", whole) for row in rows]


def test_views_of_who_was_late_are_the_reports(page: TraceProcessor, folder: Path) -> None:
    assert_views_are_the_reports(page, load(folder))
    late = page.query("select rank, cause, dur from tracekit_lateness order by ts")
    assert [tuple(row.values()) for row in late] == [(RANKS - 1, "compute", (LATE_US - 1) * 1000)] * STEPS


def names_under(tracks: Iterable[TrackDescriptor], parent: TrackDescriptor) -> list[str]:
    """Return the names of the tracks under `parent`, in their order."""
    children = [track for track in tracks if track.parent_uuid == parent.uuid]
    return [track.name for track in sorted(children, key=lambda track: track.sibling_order_rank)]


def test_the_run_comes_first_then_ranks_in_the_order_of_the_mesh(tmp_path: Path) -> None:
    """GIVEN ranks whose mesh counts its first dimension fastest THEN pages are in the order of coordinates."""
    ranks = []
    for rank, place in enumerate([[0, 0], [1, 0], [0, 1], [1, 1]]):
        trace = TraceBuilder(rank, 4).step(0, 0, 100).kernel("gemm", 10, 20, launched_at=0).capture()
        assert trace.metadata is not None
        mesh = Mesh(names=["dp", "tp"], shape=[2, 2], coordinate=place)
        trace.metadata = replace(trace.metadata, mesh=mesh)
        ranks.append(trace)
    written = merge(load(write_run(tmp_path / "in", ranks)), tmp_path / "run.pftrace")
    packets = Trace.FromString(written.path.read_bytes()).packet
    tracks = [packet.track_descriptor for packet in packets if packet.HasField("track_descriptor")]
    (top,) = (track for track in tracks if not track.parent_uuid)
    assert (top.name, top.child_ordering) == ("run", TrackDescriptor.EXPLICIT)
    assert names_under(tracks, top) == [
        "steps", "bus bandwidth", "rank 0 · node0 · dp0 tp0", "rank 2 · node0 · dp0 tp1", "rank 1 · node0 · dp1 tp0",
        "rank 3 · node0 · dp1 tp1",
    ]  # fmt: skip
    (page,) = (track for track in tracks if track.name.startswith("rank 1 ·"))
    assert names_under(tracks, page) == ["analysis", "device", "host"]
    (analysis,) = (track for track in tracks if track.parent_uuid == page.uuid and track.name == "analysis")
    assert names_under(tracks, analysis) == ["rank 1 steps", "phases", "compute", "idle", "clock uncertainty"]


def test_a_clock_s_uncertainty_is_on_its_page(page: TraceProcessor, folder: Path) -> None:
    run = load(folder)
    rows = on_track(page, "clock uncertainty", "error_ns", "offset_ns")
    expected = {clock.rank: (clock.error_ns, clock.offset_ns) for clock in run.clocks if clock.method != "none"}
    assert {row["rank"]: (row["error_ns"], row["offset_ns"]) for row in rows} == expected
    assert len(rows) == RANKS
