"""SQL over merged traces with the real trace processor: tracekit's views, and `tracekit query` itself."""

from __future__ import annotations

import io
import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import tracekit.trace_processor
from tests.perfetto.handmade_trace import START_NS, HandmadeTrace
from tests.perfetto.merged import LANES
from tracekit.cli import cli
from tracekit.loading.load import load
from tracekit.model.run import Run
from tracekit.render.merged.merge import merge
from tracekit.render.perfetto import PerfettoFormat, RankTraceWriter
from tracekit.render.slices import Slices
from tracekit.report.report import analyze
from tracekit.trace_processor import Row, TraceProcessor, views_sql

DDP = Path(__file__).parents[1] / "data" / "ddp_slow_rank"


def ask(processor: TraceProcessor, trace: bytes, sql: str) -> list[Row]:
    processor.load(trace)
    processor.ask(views_sql())
    return processor.query(sql)


def view(processor: TraceProcessor, trace: bytes, name: str) -> list[Row]:
    """Return the rows of a view in order of rank and time, without `slice_id`; `ts` counts from the trace's start."""
    rows = ask(processor, trace, f"select * from tracekit_{name} order by rank, ts")
    for row in rows:
        assert row.pop("slice_id") is not None
        row["ts"] -= START_NS
    return rows


def test_answers_that_come_in_pieces_are_complete(trace_processor: TraceProcessor, page: bytes) -> None:
    """GIVEN long cells, which the trace processor sends in several pieces THEN all of them arrive."""
    numbers = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000) "
    rows = ask(trace_processor, page, numbers + "select i * 10000000000007 as i from n")
    assert [row["i"] for row in rows] == [i * 10000000000007 for i in range(1, 100001)]
    (row,) = trace_processor.query("select replace(hex(zeroblob(1500000)), '0', 'x') as text")
    assert row["text"] == "x" * 3_000_000


@pytest.fixture(scope="module")
def page() -> bytes:
    """A trace of rank 10 and rank 2, with a slice or two on every track that tracekit adds."""
    trace = HandmadeTrace()
    run = trace.track("run")
    trace.slice(trace.track("steps", run), "step 1", 0, 50)
    for rank in (10, 2):
        page = trace.track(f"rank {rank} · node0 · dp1 tp0", run)
        analysis = trace.track("analysis", page)
        steps = trace.track(f"rank {rank} steps", analysis)
        trace.slice(steps, "step 1", 0, 100, step=1, complete=1)
        trace.slice(steps, "step 2 (incomplete)", 100, 50, step=2, complete=0)
    # Tracks and slices of the input may have the same names and category.
    host = trace.track("host", page)
    thread = trace.track("compute", trace.track("analysis", host))
    for category in ("cpu_op", "tracekit"):
        trace.slice(thread, "compute", 0, 1000, category=category)
    trace.slice(trace.track("phases", analysis), "forward", 0, 40, step=1, duration_ns=41)
    for lane, duration_ns in (("compute", 60), ("communication", 30), ("idle", 10), ("exposed copies", 5)):
        trace.slice(trace.track(lane, analysis), lane, 0, duration_ns)
    trace.slice(trace.track("bubble", analysis), "warmup", 5, 7)
    group = trace.track("collectives · dp", analysis)
    sizes = {"size_bytes": 1 << 40, "dtype": "bf16", "group": "dp", "step": 1}
    trace.slice(group, "all_reduce", 10, 20, kind="all_reduce", sequence=7, instance=3, **sizes)
    crossing = trace.track("collectives · dp · overlap 2", group)
    trace.slice(crossing, "all_gather", 20, 20, kind="all_gather", **sizes)
    messages = trace.track("point to point", analysis)
    trace.slice(messages, "send to 10", 30, 5, peer=10, is_send=1, tag=0, size_bytes=64, step=1)
    trace.slice(
        trace.track("rank 2 actions · stage 3", analysis),
        "B4",
        50,
        9,
        kind="B",
        stage=3,
        microbatch=4,
        step=1,
        wait_ns=2,
    )
    buckets = trace.track("buckets", analysis)
    trace.slice(
        buckets, "bucket 2", 60, 8, module="model", bucket=2, step=1, size_bytes=25 << 20, ready_ns=START_NS + 55,
        launch_ns=START_NS + 58, uncovered_ns=3,
    )  # fmt: skip
    trace.slice(buckets, "bucket 3", 70, 8, module=1, bucket=3, step=1, size_bytes=1)
    trace.slice(trace.track("rank 2 waits", analysis), "wait", 80, 6, blamed_rank=10, is_message=0, instance=3, step=1)
    trace.counter("GPU 0 · allocated", analysis, {0: 0.0, 20: 5e9})
    trace.counter("GPU 0 · reserved", analysis, {10: 6e9})
    return trace.to_bytes()


def test_ranks_are_numbers(trace_processor: TraceProcessor, page: bytes) -> None:
    rows = ask(trace_processor, page, "select rank, name from tracekit_ranks order by rank")
    assert rows == [{"rank": 2, "name": "rank 2 · node0 · dp1 tp0"}, {"rank": 10, "name": "rank 10 · node0 · dp1 tp0"}]


def test_steps_are_complete_or_not(trace_processor: TraceProcessor, page: bytes) -> None:
    assert [tuple(row.values()) for row in view(trace_processor, page, "steps")] == [
        (2, 1, 1, 0, 100), (2, 2, 0, 100, 50), (10, 1, 1, 0, 100), (10, 2, 0, 100, 50),
    ]  # fmt: skip


def test_lanes_phases_bubbles_and_waits(trace_processor: TraceProcessor, page: bytes) -> None:
    lanes = ask(trace_processor, page, "select lane, sum(dur) as dur from tracekit_lanes group by lane order by lane")
    assert {row["lane"]: row["dur"] for row in lanes} == {
        "compute": 60, "communication": 30, "idle": 10, "exposed copies": 5,
    }  # fmt: skip
    assert view(trace_processor, page, "phases") == [
        {"rank": 2, "step": 1, "phase": "forward", "duration_ns": 41, "ts": 0, "dur": 40}
    ]
    assert view(trace_processor, page, "bubbles") == [{"rank": 2, "place": "warmup", "ts": 5, "dur": 7}]
    assert view(trace_processor, page, "waits") == [
        {"rank": 2, "blamed_rank": 10, "is_message": 0, "instance": 3, "step": 1, "ts": 80, "dur": 6}
    ]


def test_memory_is_by_device(trace_processor: TraceProcessor, page: bytes) -> None:
    rows = ask(trace_processor, page, "select * from tracekit_memory order by what, ts")
    assert [(row["rank"], row["device"], row["what"], row["size_bytes"], row["ts"] - START_NS) for row in rows] == [
        (2, "GPU 0", "allocated", 0, 0),
        (2, "GPU 0", "allocated", 5_000_000_000, 20),
        (2, "GPU 0", "reserved", 6_000_000_000, 10),
    ]
    assert rows[0]["dur"] == 20


def test_collectives_that_cross_others_have_their_group(trace_processor: TraceProcessor, page: bytes) -> None:
    same = {"rank": 2, "step": 1, "process_group": "dp", "size_bytes": 1 << 40, "dtype": "bf16", "dur": 20}
    assert view(trace_processor, page, "collectives") == [
        same | {"kind": "all_reduce", "sequence": 7, "instance": 3, "ts": 10},
        same | {"kind": "all_gather", "sequence": None, "instance": None, "ts": 20},
    ]


def test_messages_actions_and_buckets(trace_processor: TraceProcessor, page: bytes) -> None:
    assert view(trace_processor, page, "point_to_point") == [
        {"rank": 2, "step": 1, "peer": 10, "is_send": 1, "tag": 0, "size_bytes": 64, "ts": 30, "dur": 5}
    ]
    assert view(trace_processor, page, "actions") == [
        {"rank": 2, "step": 1, "stage": 3, "kind": "B", "microbatch": 4, "wait_ns": 2, "ts": 50, "dur": 9}
    ]
    first, second = view(trace_processor, page, "buckets")
    assert first == {
        "rank": 2, "step": 1, "module": "model", "bucket": 2, "size_bytes": 25 << 20, "ready_ns": START_NS + 55,
        "launch_ns": START_NS + 58, "uncovered_ns": 3, "ts": 60, "dur": 8,
    }  # fmt: skip
    assert (second["module"], second["bucket"], second["ready_ns"]) == ("1", 3, None)


def test_slices_on_overlap_tracks_keep_their_rank_and_track(trace_processor: TraceProcessor) -> None:
    """GIVEN crossing slices, which `RankTraceWriter` writes on tracks under the track THEN the view has all of them."""
    stream = io.BytesIO()
    stream.write(PerfettoFormat(start_ns=START_NS).head)
    writer = RankTraceWriter(stream, rank=0)
    group = writer.add_track("analysis", parent=writer.add_rank_page("rank 0 · node0"))
    track = writer.add_track("collectives · pp", parent=group)
    starts = START_NS + np.array([0, 5, 7])
    track_rows = writer.write_slices(track, Slices.named(["broadcast"] * 3, starts, starts + 10, category="tracekit"))
    assert track_rows == 3
    rows = view(trace_processor, stream.getvalue(), "collectives")
    assert [(row["rank"], row["process_group"], row["ts"]) for row in rows] == [
        (0, "pp", 0),
        (0, "pp", 5),
        (0, "pp", 7),
    ]


def assert_lanes_are_the_reports_numbers(processor: TraceProcessor, run: Run) -> None:
    rows = processor.query("select rank, lane, sum(dur) as dur from tracekit_lanes group by rank, lane")
    lanes = {(row["rank"], row["lane"]): row["dur"] for row in rows}
    breakdown = analyze(run).breakdown
    assert breakdown is not None
    for row in breakdown.ranks.to_dict("records"):
        assert {lane: lanes.get((row["rank"], lane), 0) for lane in LANES} == {
            lane: row[part] for lane, part in LANES.items()
        }


def test_lanes_of_a_merged_run_are_the_reports_numbers(trace_processor: TraceProcessor, tmp_path: Path) -> None:
    run = load(DDP)
    merged = merge(run, tmp_path / "run.pftrace")
    rows = ask(trace_processor, merged.path.read_bytes(), "select rank, step, dur from tracekit_steps where complete")
    assert {(row["rank"], row["step"]): row["dur"] for row in rows} == {
        (summary.rank, step.step): step.step_ns for summary in run.ranks for step in summary.steps if step.complete
    }
    assert_lanes_are_the_reports_numbers(trace_processor, run)


@pytest.fixture
def running(trace_processor: TraceProcessor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command uses the trace processor that already runs, as another would need a second to start."""
    monkeypatch.setattr(tracekit.trace_processor, "open_trace_processor", lambda: nullcontext(trace_processor))


def query(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["query", *map(str, arguments)], prog_name="tracekit")


def test_the_command_over_a_run(trace_processor: TraceProcessor) -> None:
    """GIVEN two statements, the first of which makes a table THEN the rows of the second are printed."""
    first = "create perfetto table slow as select rank, max(dur) as dur from tracekit_steps group by rank"
    result = query(DDP, f"{first}; select * from slow", "--json")
    assert result.exit_code == 0, result.stderr
    longest = {s.rank: max(step.step_ns for step in s.steps) for s in load(DDP).ranks}
    assert json.loads(result.stdout)["rows"] == [{"rank": rank, "dur": dur} for rank, dur in longest.items()]
    assert result.stderr == ""


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("selec 1", "in line 1, column 1: syntax error"),
        ("select\n  nope from slice", "in line 2, column 3: no such column: nope"),
        ("select * from tracekit_step", "no such table: tracekit_step"),
        ("select 1; select nope", "in line 1, column 18: no such column: nope"),
        ("", "No valid SQL to run"),
        ("include perfetto module no.such", "'no.such' not found"),
    ],
)
def test_wrong_sql_is_reported_in_one_line_with_its_place(page: bytes, tmp_path: Path, sql: str, message: str) -> None:
    path = tmp_path / "run.pftrace"
    path.write_bytes(page)
    result = query(path, sql)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.usefixtures("running")
def test_a_trace_that_perfetto_cannot_read_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "run.pftrace"
    path.write_bytes(b"\x0a\x02\xff\xff" * 20)  # packets that cannot be parsed
    result = query(path, "select 1")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "Perfetto cannot read the trace: " in result.stderr
    assert result.stderr.count("\n") == 1
