"""Native traces that tracekit writes, read by the real trace processor."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.components import require_module
from tracekit.model.events import ABSENT
from tracekit.read.decode.field_values import select_extra_args
from tracekit.render.perfetto import PerfettoFormat, RankTraceWriter
from tracekit.render.slices import Argument, Slices, track_row_boundaries
from tracekit.stats.grouped import grouped
from tracekit.trace_processor import TraceProcessor


@pytest.fixture(scope="module", params=["native", "portable"], autouse=True)
def encoder(request: pytest.FixtureRequest) -> Iterator[None]:
    """All tests run with the compiled and with the portable encoder."""
    if request.param == "native":
        require_module("tracekit.render.perfetto._encoder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACEKIT_NATIVE", str(int(request.param == "native")))
        yield


START = 1_752_000_000_123_456_789
NAMES = ["aten::mm", "", 'quote " and 中文', "x" * 1000, "cpu_op", "user_annotation"]

Slice = tuple[int, int, int]  # start, duration, name


@st.composite
def trees(draw: st.DrawFn) -> list[Slice]:
    """Slices that nest. Siblings may touch, children may share both ends, leaves may have no duration."""
    slices: list[Slice] = []

    def fill(start: int, end: int, depth: int) -> None:
        cuts = sorted(draw(st.lists(st.integers(start, end), min_size=2, max_size=6)))
        for low, high in zip(cuts[::2], cuts[1::2], strict=False):
            slices.append((low, high - low, draw(st.integers(0, 3))))
            if depth < 4 and high > low:
                fill(low, high, depth + 1)

    fill(0, draw(st.sampled_from([3, 30, 10**9])), 0)
    return draw(st.permutations(slices))


SOUP = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 3)), max_size=30)


def columns(slices: list[Slice]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    array = np.array(slices, dtype=np.int64).reshape(-1, 3)
    return array[:, 0] + START, array[:, 1], array[:, 2].astype(np.int32)


def write(threads: list[list[Slice]], ranks: int = 2) -> bytes:
    """Return a trace of slices; rank i % ranks writes thread i, and ranks write in descending order."""
    stream = io.BytesIO()
    stream.write(PerfettoFormat(start_ns=START).head)
    for rank in reversed(range(ranks)):
        writer = RankTraceWriter(stream, rank)
        page = writer.add_rank_page(f"rank {rank}", order=rank)
        for i in range(rank, len(threads), ranks):
            thread = writer.add_track(f"thread {i}", parent=page, order=i)
            start_ns, duration_ns, name_ids = columns(threads[i])
            categories = np.full(len(name_ids), 4, dtype=np.int32)
            times = {"start_ns": start_ns, "duration_ns": duration_ns}
            writer.write_slices(thread, Slices(**times, name=name_ids, category=categories, strings=NAMES))
    return stream.getvalue()


def read(processor: TraceProcessor, trace: bytes) -> dict[int, list[tuple[int, int, str, int]]]:
    """Return the slices (start, duration, name, depth) of each thread, over all its tracks."""
    processor.load(trace)
    assert processor.errors() == []
    rows = processor.query(
        "select cast(substr(track.name, 8) as int) as thread, ts, dur, slice.name as name, depth, category "
        "from slice join track on track_id = track.id"
    )
    assert processor.query("select count() as n from slice") == [{"n": len(rows)}]
    assert {row["category"] for row in rows} <= {"cpu_op"}
    return grouped((row["thread"], (row["ts"] - START, row["dur"], row["name"], row["depth"])) for row in rows)


def true_depths(slices: list[Slice]) -> list[int]:
    """Return how many slices contain each slice: those that open before it and end after its start."""
    rows = sorted(range(len(slices)), key=lambda row: (slices[row][0], -slices[row][1]))
    depths = [0] * len(slices)
    for position, row in enumerate(rows):
        depths[row] = sum(sum(slices[outer][:2]) > slices[row][0] for outer in rows[:position])
    return depths


# Loading a trace takes about 50 ms, so an example has many threads.
thorough = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)  # fmt: skip


@thorough
@given(threads=st.lists(trees(), min_size=10, max_size=20))
def test_nested_slices_are_exact_at_their_depth(trace_processor: TraceProcessor, threads: list[list[Slice]]) -> None:
    seen = read(trace_processor, write(threads))
    for i, slices in enumerate(threads):
        assert len(track_row_boundaries(*columns(slices)[:2])) == 1
        depths = true_depths(slices)
        expected = [(start, dur, NAMES[name], depth) for (start, dur, name), depth in zip(slices, depths, strict=True)]
        assert Counter(seen.get(i, [])) == Counter(expected)


@thorough
@given(threads=st.lists(SOUP, min_size=10, max_size=20))
def test_no_overlapping_slice_is_lost_or_changed(trace_processor: TraceProcessor, threads: list[list[Slice]]) -> None:
    seen = read(trace_processor, write(threads))
    for i, slices in enumerate(threads):
        expected = Counter((start, dur, NAMES[name]) for start, dur, name in slices)
        assert Counter(slice_[:3] for slice_ in seen.get(i, [])) == expected


def test_stacks_deeper_than_the_limit_are_kept(trace_processor: TraceProcessor) -> None:
    slices = [(i, 5000 - 2 * i, 0) for i in range(1200)]
    (seen,) = read(trace_processor, write([slices])).values()
    assert sorted(slice_[:3] for slice_ in seen) == [(start, dur, NAMES[name]) for start, dur, name in slices]
    assert Counter(slice_[3] for slice_ in seen) == Counter(i % 512 for i in range(1200))


def test_a_slice_may_have_no_name_and_odd_text(trace_processor: TraceProcessor) -> None:
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    start_ns = START + np.arange(2)
    nameless = Slices(
        start_ns=start_ns,
        duration_ns=np.zeros(2, np.int64),
        name=np.array([ABSENT, 0], np.int32),
        category=np.full(2, ABSENT, np.int32),
        strings=["lone \ud800"],
    )
    writer.write_slices(writer.add_track("odd"), nameless)
    trace_processor.load(stream.getvalue())
    assert trace_processor.errors() == []
    assert trace_processor.query("select name, category from slice order by ts") == [
        {"name": None, "category": None},
        {"name": "lone ?", "category": None},
    ]


def test_extra_arguments_keep_values_and_types(trace_processor: TraceProcessor) -> None:
    """GIVEN extra arguments beside another one WHEN loaded THEN each is an argument, with _ for . [ ] in its name."""
    kernel = (
        '{"grid": [4, 1, 1],"registers per thread": 32,"est. achieved occupancy %": 50,"warps per SM": 0.25,"on": true,'
        '"Input type": ["float", ""],"kernel": "sm90 \\u4e2d\\ud83d\\ude00","handle": 18446744073709551615,'
        '"none": null}'
    )
    expected = {
        "size": (7, "int"),
        "grid": ("[4, 1, 1]", "string"),
        "registers per thread": (32, "int"),
        "est_ achieved occupancy %": (50, "int"),
        "warps per SM": (0.25, "real"),
        "on": (1, "bool"),
        "Input type": ('["float", ""]', "string"),
        "kernel": ("sm90 中😀", "string"),
        "handle": ("18446744073709551615", "string"),
        "none": ("null", "string"),
    }
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    column = np.zeros(3, np.int32)
    slices = Slices(
        start_ns=START + np.arange(3), duration_ns=column.astype(np.int64), name=column, category=column,
        strings=["op", select_extra_args(kernel.encode())],
        arguments=(Argument(name="size", values=np.array([7, 8, 9])),),
        extra_args=np.array([1, ABSENT, 1], np.int32),
    )  # fmt: skip
    writer.write_slices(writer.add_track("t"), slices)
    trace_processor.load(stream.getvalue())
    assert trace_processor.errors() == []
    for name, (value, kind) in expected.items():
        rows = trace_processor.query(
            f"select extract_arg(arg_set_id, 'debug.{name}') as value, value_type from slice "
            f"left join args using (arg_set_id) where key = 'debug.{name}' order by ts"
        )
        assert [rows[0], len(rows)] == [{"value": value, "value_type": kind}, 3 if name == "size" else 2]


SHOWN = (
    "include perfetto module viz.summary.track_event;"
    "select t.name as name, parent.name as parent, track_ids from _track_event_tracks_ordered_groups as t "
    "left join track as parent on t.parent_id = parent.id order by parent, order_id"
)


def test_tracks_are_shown_by_their_order(trace_processor: TraceProcessor) -> None:
    """GIVEN tracks of one name WHEN the UI's module sorts them THEN they are sorted by `order`, and none are merged."""
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    group = writer.add_track("steps")
    one = np.array([1], dtype=np.int64)
    for order in (3, 1, 2):
        track = writer.add_track("same", parent=group, order=order)
        start_ns = START - order * one
        writer.write_slices(track, Slices.named(["s"], start_ns, start_ns + one, category="tracekit"))
    trace_processor.load(stream.getvalue())
    shown = [row["track_ids"] for row in trace_processor.query(SHOWN) if row["name"] == "same"]
    starts = trace_processor.query("select track_id, ts from slice")
    assert [START - row["ts"] for track in shown for row in starts if row["track_id"] == int(track)] == [1, 2, 3]


def test_pages_are_under_the_run_in_their_order(trace_processor: TraceProcessor) -> None:
    """GIVEN ranks with different numbers of slices, written in any order WHEN the UI's module sorts their pages THEN
    they come by `order`, after the run's own tracks, with the names that were given."""
    stream = io.BytesIO()
    stream.write(PerfettoFormat(start_ns=START).head)
    names = [f"rank {rank} · host" for rank in range(12)]
    for rank in (10, 2, 0, 11, 1, *range(3, 10)):
        writer = RankTraceWriter(stream, rank)
        starts_ns = START + 10 * np.arange(1 + rank % 5)
        slices = Slices.named(["s"] * len(starts_ns), starts_ns, starts_ns + 1, category="tracekit")
        writer.write_slices(writer.add_track("main", parent=writer.add_rank_page(names[rank], order=rank)), slices)
    writer = RankTraceWriter(stream, 12)
    for order, name in enumerate(("steps", "critical path")):
        writer.write_slices(writer.add_track(name, parent=writer.add_run_page(), order=order), slices)
    trace_processor.load(stream.getvalue())
    assert trace_processor.errors() == []
    rows = trace_processor.query(SHOWN)
    assert [row["name"] for row in rows if row["parent"] is None] == ["run"]
    assert [row["name"] for row in rows if row["parent"] == "run"] == ["steps", "critical path", *names]
    assert trace_processor.query("select name from process where pid > 0") == []


def test_clocks(trace_processor: TraceProcessor) -> None:
    trace_processor.load(write([[(0, 1, 0)], [(0, 1, 0)]]))
    clocks = trace_processor.query("select clock_name, clock_value - ts as ahead from clock_snapshot order by 1")
    assert clocks == [{"clock_name": "BOOTTIME", "ahead": 0}, {"clock_name": "REALTIME", "ahead": 0}]
