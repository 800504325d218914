"""Documents in Chrome's format, read by the standard library's JSON reader."""

from __future__ import annotations

import io
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.chrome.chrome_documents import BASE_NS, chrome_document, read_events, slices_of
from tracekit.chrome import ChromeWriter
from tracekit.render.slices import Argument, Slices
from tracekit.stats.grouped import grouped

HOSTILE = [
    'quote " and \\',
    "tab\t line\n nul\0 \x1f",
    "\u2028\u2029",
    "中文 😀",
    "100 %s %d %",
    "C:\\dir\\",
    "\\",
    "\\\\",
    '\\"',
    "x" * 1000,
    "",
    "</script>",
]
SOUP = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000), st.integers(-1, 1)), max_size=30)


def new_writer() -> ChromeWriter:
    return ChromeWriter(io.BytesIO(), 0, base_ns=BASE_NS)


def one_track(slices: Slices, name: str = "track") -> list[dict]:
    def write(writer: ChromeWriter) -> None:
        writer.write_slices(writer.add_track(name, parent=writer.add_rank_page("rank 0")), slices)

    return read_events(chrome_document(write))


@settings(deadline=None)  # each example writes a document
@given(SOUP)
def test_every_slice_is_exact_and_none_cross_on_a_thread(rows: list[tuple[int, int, int]]) -> None:
    events = one_track(slices_of(rows, ["a", "b"], category=1))
    names = {-1: "", 0: "a", 1: "b"}
    assert Counter((e["ts"], e["dur"], e["name"]) for e in events) == Counter(
        (start, duration, names[name]) for start, duration, name in rows
    )
    assert {e["cat"] for e in events} <= {"b"}
    for thread in grouped((event["tid"], event) for event in events).values():
        open_ends: list[int] = []
        for event in thread:
            while open_ends and open_ends[-1] <= event["ts"]:
                open_ends.pop()
            assert not open_ends or event["ts"] + event["dur"] <= open_ends[-1]
            open_ends.append(event["ts"] + event["dur"])
        assert [e["ts"] for e in thread] == sorted(e["ts"] for e in thread)


def test_nanoseconds_survive_far_from_the_base() -> None:
    far = 10**15 + 1  # eleven days
    (event,) = one_track(slices_of([(far, far + 998, 0)], ["a"]))
    assert (event["ts"], event["dur"]) == (far, far + 998)


def test_text_is_unchanged() -> None:
    rows = [(i, 1, i) for i in range(len(HOSTILE))]
    text = Argument(name='odd "%s', values=np.arange(len(HOSTILE), dtype=np.int32), is_text=True)
    events = one_track(slices_of(rows, HOSTILE, arguments=(text,)))
    assert [event["name"] for event in events] == [event["args"]['odd "%s'] for event in events] == HOSTILE


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert one_track(slices_of([(0, 1, 0)], ["lone \ud800"]))[0]["name"] == "lone ?"


def test_arguments_keep_their_types_and_are_only_where_present() -> None:
    arguments = (
        Argument(name="size", values=np.array([0, -1, 2**63 - 1, -(2**63)])),
        Argument(name="step", values=np.array([1, 2, 3, 4]), present=np.array([True, False, False, True])),
        Argument(name="dtype", values=np.array([0, -1, 1, 0], dtype=np.int32), is_text=True),
    )
    rows = [(i, 1, 0) for i in range(4)]
    events = one_track(slices_of(rows, ["f32", "f16"], arguments=arguments))
    assert [{key: str(value) for key, value in event["args"].items()} for event in events] == [
        {"size": "0", "step": "1", "dtype": "f32"},
        {"size": "-1"},
        {"size": str(2**63 - 1), "dtype": "f16"},
        {"size": str(-(2**63)), "step": "4", "dtype": "f32"},
    ]


def test_many_optional_arguments() -> None:
    """GIVEN more optional arguments than an integer has bits THEN each slice has its own."""
    present = np.eye(200, dtype=np.bool_)
    arguments = tuple(Argument(name=f"a{k}", values=np.arange(200), present=present[k]) for k in range(200))
    events = one_track(slices_of([(i, 1, 0) for i in range(200)], ["a"], arguments=arguments))
    assert [event["args"] for event in events] == [{f"a{i}": i} for i in range(200)]


def test_slices_of_several_blocks_are_complete_and_in_order() -> None:
    count = 40_000
    step = Argument(name="row", values=np.arange(count), present=np.arange(count) % 3 > 0)
    events = one_track(slices_of([(i, 1, 0) for i in range(count)], ["a"], arguments=(step,)))
    assert [event["ts"] for event in events] == list(range(count))
    assert [event.get("args") for event in events] == [{"row": i} if i % 3 else None for i in range(count)]


def test_counters_leave_out_what_json_cannot_express() -> None:
    def write(writer: ChromeWriter) -> None:
        process = writer.add_rank_page("rank 0")
        times = BASE_NS + np.arange(5)
        for unit in ("GB/s", ""):
            counter = writer.add_counter('busbw "dp" %', unit=unit, parent=process)
            writer.write_counter(counter, times, np.array([1.5, np.nan, np.inf, -np.inf, 2.0]))

    events = read_events(chrome_document(write), "C")
    assert {event["name"] for event in events} == {'busbw "dp" %'}
    assert [(event["ts"], {k: float(v) for k, v in event["args"].items()}) for event in events] == [
        (0, {"GB/s": 1.5}), (4, {"GB/s": 2.0}), (0, {"value": 1.5}), (4, {"value": 2.0}),
    ]  # fmt: skip


def page(writer: ChromeWriter, pid: int) -> None:
    """Write tracks in another order than that of the page, with two overlapping slices on each."""
    process = writer.add_rank_page(f"rank {pid - 1}", order=pid - 1)
    crossing = slices_of([(0, 10, 0), (5, 10, 0)], ["a"])
    host = writer.add_track("host", parent=process, order=201)
    threads = [writer.add_track(name, parent=host, order=k) for k, name in enumerate(("main", "autograd"))]
    device = writer.add_track("device", parent=process, order=9)
    late = writer.add_track("late", parent=process, order=200)
    streams = [writer.add_track(f"stream {k}", parent=device, order=k) for k in (300, 1, 2)]
    compute = writer.add_track("compute", parent=process, order=1)
    steps = writer.add_track("steps", parent=process, order=0)
    for track in (*threads, *streams, late, compute, steps):
        assert writer.write_slices(track, crossing) == 2


def test_threads_are_in_the_order_of_the_page() -> None:
    """GIVEN tracks added in any order WHEN sorted by tid or sort index THEN they are in the order of the page."""
    document = chrome_document(lambda writer: page(writer, 1), lambda writer: page(writer, 2))
    metadata = read_events(document, "M")
    named = {e["tid"]: (e["pid"], e["args"]["name"]) for e in metadata if e["name"] == "thread_name"}
    lanes = ["steps", "compute", "stream 1", "stream 2", "stream 300", "late", "main", "autograd"]
    expected = [name for lane in lanes for name in (lane, f"{lane} · overlap 2")]
    for pid in (1, 2):
        assert [named[tid][1] for tid in sorted(named) if named[tid][0] == pid] == expected
    assert {e["tid"]: e["args"]["sort_index"] for e in metadata if e["name"] == "thread_sort_index"} == {
        tid: tid for tid in named
    }
    assert max(named) < 2**31
    processes = [(e["pid"], e["name"], e["args"]) for e in metadata if "tid" not in e]
    assert processes == [
        (1, "process_sort_index", {"sort_index": 1}), (1, "process_name", {"name": "rank 0"}),
        (2, "process_sort_index", {"sort_index": 2}), (2, "process_name", {"name": "rank 1"}),
    ]  # fmt: skip


def test_more_lanes_and_tracks_than_ids_are_reserved_for() -> None:
    """GIVEN 100 slices that all cross, on each of 200 tracks THEN every track row has a thread id that no other has."""

    def write(writer: ChromeWriter) -> None:
        process = writer.add_rank_page("rank 0")
        for k in range(200):
            writer.write_slices(
                writer.add_track(f"t{k}", parent=process, order=k), slices_of([(i, 200, 0) for i in range(100)], ["a"])
            )

    events = read_events(chrome_document(write))
    assert len({event["tid"] for event in events}) == len(events) == 20_000


def test_no_thread_is_deeper_than_viewers_show() -> None:
    """GIVEN a stack of 400 and in it 1200 slices of one time, which viewers nest, THEN no thread is deeper than 512."""
    rows = [(0, 5000, 0)] * 400 + [(7, 0, 1)] * 1200 + [(9, 0, 1)] * 300
    events = one_track(slices_of(rows, ["a", "b"]))
    assert Counter((e["ts"], e["dur"]) for e in events) == Counter((start, duration) for start, duration, _ in rows)
    on_thread = Counter((e["tid"], e["ts"]) for e in events)
    threads = {tid for tid, _ in on_thread}
    assert max(on_thread[tid, 0] + on_thread[tid, at] for tid in threads for at in (7, 9)) <= 512


def test_windows_share_their_threads() -> None:
    """GIVEN two windows on one track THEN slices that overlap in either window are on the same further thread."""

    def write(writer: ChromeWriter) -> None:
        track = writer.add_track("t", parent=writer.add_rank_page("rank 0"))
        for at in (0, 100):
            assert writer.write_slices(track, slices_of([(at, 10, 0), (at + 5, 10, 0)], ["a"])) == 2

    document = chrome_document(write)
    threads = Counter(event["tid"] for event in read_events(document))
    assert sorted(threads.values()) == [2, 2]
    names = [e["args"]["name"] for e in read_events(document, "M") if e["name"] == "thread_name"]
    assert names == ["t", "t · overlap 2"]


def test_ranks_share_no_thread() -> None:
    ids = set()
    for rank in (0, 1, 8000):
        writer = ChromeWriter(io.BytesIO(), rank, base_ns=0)
        process = writer.add_rank_page("rank")
        ids |= {writer.add_track(name, parent=process, order=k).tid for k, name in enumerate(("steps", "main"))}
    assert len(ids) == 6
    assert min(ids) > 2**20 > 8001
    assert max(ids) < 2**31


def test_a_track_without_slices_writes_nothing() -> None:
    stream = io.BytesIO()
    writer = ChromeWriter(stream, 0, base_ns=BASE_NS)
    process = writer.add_rank_page("rank 0")
    before = stream.getvalue()
    assert writer.write_slices(writer.add_track("empty", parent=process), slices_of([], [])) == 0
    assert stream.getvalue() == before


def test_a_document_without_events_is_valid() -> None:
    assert read_events(chrome_document(), "XM") == []
    assert len(read_events(chrome_document(lambda _: None, lambda w: page(w, 2), lambda _: None), "X")) == 16


@pytest.mark.parametrize(
    ("row", "extra", "message"),
    [
        ((-1, 1, 0), {}, "before the base"),
        ((1, -1, 0), {}, "negative"),
        ((1, 2**63 - 1, 0), {}, "beyond"),
        ((1, 1, 0), {"arguments": (Argument(name="a", values=np.arange(2)),)}, "different lengths"),
    ],
)
def test_impossible_slices_are_refused(row: tuple[int, int, int], extra: dict, message: str) -> None:
    writer = new_writer()
    track = writer.add_track("t", parent=writer.add_rank_page("rank 0"))
    with pytest.raises(ValueError, match=message):
        writer.write_slices(track, slices_of([row], ["a"], **extra))


def test_values_before_the_base_time_are_refused() -> None:
    writer = new_writer()
    counter = writer.add_counter("c", parent=writer.add_rank_page("rank 0"))
    with pytest.raises(ValueError, match="counter"):
        writer.write_counter(counter, np.array([BASE_NS - 1]), np.ones(1))
