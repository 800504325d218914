"""Chrome JSON that tracekit writes, read by the real trace processor."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.perfetto.test_native_trace import SOUP, Slice, thorough, trees, true_depths
from tests.unit.chrome.chrome_documents import BASE_NS, chrome_document, slices_of
from tracekit.chrome import ChromeWriter
from tracekit.render.slices import ROLES, Argument, Flows
from tracekit.stats.grouped import grouped
from tracekit.trace_processor import Row, TraceProcessor

NAMES = ["aten::mm", "a {[,]}: \u2028", 'quote " \\ tab\t line\n \x1f 中文 😀 %s', "x" * 1000, "cpu_op"]

Arrow = tuple[int, int, int]  # id, rank, start


def write(threads: list[list[Slice]], ranks: int = 2) -> bytes:
    """Return a document of slices; rank i % ranks writes thread i."""

    def part(rank: int, writer: ChromeWriter) -> None:
        process = writer.add_rank_page(f"rank {rank}", order=rank)
        for i in range(rank, len(threads), ranks):
            thread = writer.add_track(f"thread {i}", parent=process, order=i)
            writer.write_slices(thread, slices_of(threads[i], NAMES, category=4))

    return chrome_document(*(lambda writer, rank=rank: part(rank, writer) for rank in range(ranks)))


def read(processor: TraceProcessor, trace: bytes) -> dict[int, list[tuple[int, int, str, int]]]:
    """Return the slices (start, duration, name, depth) of each thread, over all its track rows."""
    processor.load(trace)
    assert processor.errors() == []
    rows = processor.query(
        "select thread.name as thread, ts, dur, slice.name as name, depth, category "
        "from slice join thread_track on track_id = thread_track.id join thread using (utid)"
    )
    assert processor.query("select count() as n from slice") == [{"n": len(rows)}]
    assert {row["category"] for row in rows} <= {"cpu_op"}
    numbers = (int(row["thread"].split(" · ")[0].removeprefix("thread ")) for row in rows)
    slices = ((row["ts"], row["dur"], row["name"], row["depth"]) for row in rows)
    return grouped(zip(numbers, slices, strict=True))


@thorough
@given(threads=st.lists(trees(), min_size=10, max_size=20))
def test_nested_slices_are_exact_at_their_depth(trace_processor: TraceProcessor, threads: list[list[Slice]]) -> None:
    seen = read(trace_processor, write(threads))
    for i, slices in enumerate(threads):
        depths = [
            (start, dur, NAMES[name], depth)
            for (start, dur, name), depth in zip(slices, true_depths(slices), strict=True)
        ]
        lasting = [slice_ for slice_ in seen.get(i, []) if slice_[1]]
        assert Counter(lasting) == Counter(slice_ for slice_ in depths if slice_[1])
        assert Counter(slice_[:3] for slice_ in seen.get(i, [])) == Counter(slice_[:3] for slice_ in depths)


@thorough
@given(threads=st.lists(SOUP, min_size=10, max_size=20))
def test_no_overlapping_slice_is_lost_or_changed(trace_processor: TraceProcessor, threads: list[list[Slice]]) -> None:
    seen = read(trace_processor, write(threads))
    for i, slices in enumerate(threads):
        expected = Counter((start, dur, NAMES[name]) for start, dur, name in slices)
        assert Counter(slice_[:3] for slice_ in seen.get(i, [])) == expected


def test_stacks_deeper_than_the_limit_are_kept(trace_processor: TraceProcessor) -> None:
    slices = [(i, 5000 - 2 * i, 0) for i in range(1200)]
    (seen,) = read(trace_processor, write([slices], ranks=1)).values()
    assert sorted(slice_[:3] for slice_ in seen) == [(start, dur, NAMES[name]) for start, dur, name in slices]


def test_nanoseconds_survive_far_from_the_base(trace_processor: TraceProcessor) -> None:
    far = 10**15 + 1  # eleven days
    assert read(trace_processor, write([[(far, far + 998, 0)]], ranks=1)) == {0: [(far, far + 998, NAMES[0], 0)]}


def test_arguments(trace_processor: TraceProcessor) -> None:
    arguments = (
        Argument(name="size_bytes", values=np.array([2**63 - 1, -(2**63), 0])),
        Argument(name="text", values=np.array([1, 2, 3], dtype=np.int32), is_text=True),
        Argument(name="step", values=np.array([7, 8, 9]), present=np.array([False, True, False])),
    )

    def part(writer: ChromeWriter) -> None:
        track = writer.add_track("t", parent=writer.add_rank_page("rank 0"))
        writer.write_slices(track, slices_of([(i, 1, 0) for i in range(3)], NAMES, arguments=arguments))

    trace_processor.load(chrome_document(part))
    assert trace_processor.errors() == []
    columns = ", ".join(f"extract_arg(arg_set_id, 'args.{argument.name}') as {argument.name}" for argument in arguments)
    assert trace_processor.query(f"select {columns} from slice order by ts") == [
        {"size_bytes": 2**63 - 1, "text": NAMES[1], "step": None},
        {"size_bytes": -(2**63), "text": NAMES[2], "step": 8},
        {"size_bytes": 0, "text": NAMES[3], "step": None},
    ]


def test_extra_arguments_keep_values_and_types(trace_processor: TraceProcessor) -> None:
    """GIVEN extra arguments beside another one, with texts for which Perfetto refuses traces THEN all are arguments."""
    kernel = (
        '{"grid": [4, 1, 1],"est. achieved occupancy %": 50,"warps per SM": 0.25,"on": true,"path": ["C:\\\\"],'
        '"end": "\\\\","Input type": ["float", ""],"kernel": "\\u4e2d\\ud83d\\ude00","o": {"\\ud83d\\ude00": 1e-3}}'
    )
    expected = {
        "size": (7, "int"),
        "grid[0]": (4, "int"),
        "grid[2]": (1, "int"),
        "est. achieved occupancy %": (50, "int"),
        "warps per SM": (0.25, "real"),
        "on": (1, "bool"),
        "path[0]": ("C:\\u005c", "string"),
        "end": ("\\u005c", "string"),
        "Input type[0]": ("float", "string"),
        "Input type[1]": ("", "string"),
        "kernel": ("中😀", "string"),
        "o.😀": (0.001, "real"),
    }

    def part(writer: ChromeWriter) -> None:
        track = writer.add_track("t", parent=writer.add_rank_page("rank 0"))
        size = Argument(name="size", values=np.array([7, 8, 9]))
        times = [(i, 1, 0) for i in range(3)]
        writer.write_slices(track, slices_of(times, ["op", kernel], arguments=(size,), extra_args=[1, -1, 1]))

    trace_processor.load(chrome_document(part))
    assert trace_processor.errors() == []
    for name, (value, kind) in expected.items():
        rows = trace_processor.query(
            f"select extract_arg(arg_set_id, 'args.{name}') as value, value_type from slice "
            f"left join args using (arg_set_id) where key = 'args.{name}' order by ts"
        )
        assert [rows[0], len(rows)] == [{"value": value, "value_type": kind}, 3 if name == "size" else 2]


def test_processes_threads_and_counters(trace_processor: TraceProcessor) -> None:
    """GIVEN tracks in any order WHEN sorted by tid, as Perfetto's UI does THEN they are in the order of the page."""

    def part(writer: ChromeWriter) -> None:
        process = writer.add_rank_page("rank 0 · host")
        main = writer.add_track("main", parent=writer.add_track("host", parent=process, order=3))
        communication = writer.add_track("communication", parent=process, order=2)
        steps = writer.add_track("steps", parent=process, order=0)
        for track in (main, communication, steps):
            writer.write_slices(track, slices_of([(0, 10, 0), (5, 10, 0)], NAMES))
        counter = writer.add_counter("busbw dp", unit="GB/s", parent=process)
        writer.write_counter(counter, BASE_NS + np.arange(3), np.array([1.5, np.nan, 3.0]))

    trace_processor.load(chrome_document(part))
    assert trace_processor.errors() == []
    shown = trace_processor.query(
        "select distinct thread.name as name from slice join thread_track on track_id = thread_track.id "
        "join thread using (utid) join process using (upid) where process.name = 'rank 0 · host' order by tid"
    )
    names = [f"{name}{lane}" for name in ("steps", "communication", "main") for lane in ("", " · overlap 2")]
    assert [row["name"] for row in shown] == names
    counters = trace_processor.query(
        "select name, ts, value from counter join process_counter_track as t on track_id = t.id order by ts"
    )
    assert counters == [{"name": "busbw dp GB/s", "ts": ts, "value": value} for ts, value in ((0, 1.5), (2, 3.0))]


def arrows(processor: TraceProcessor, document: bytes) -> list[Row]:
    processor.load(document)
    assert processor.errors() == []
    assert processor.query("select name from stats where name glob 'flow_*' and value > 0") == []
    return processor.query(
        "select extract_arg(o.arg_set_id, 'args.number') as begin, extract_arg(i.arg_set_id, 'args.number') as end "
        "from flow join slice as o on slice_out = o.id join slice as i on slice_in = i.id"
    )


@thorough
@given(data=st.data())
def test_arrows_join_the_slices_of_each_chain(trace_processor: TraceProcessor, data: st.DataObject) -> None:
    """GIVEN chains over nested slices of three ranks WHEN loaded THEN each joins its slices in order of time."""
    starts = sorted(data.draw(st.sets(st.integers(0, 60), min_size=12, max_size=40)))
    rows = [(start, data.draw(st.integers(0, 20))) for start in starts]
    rank_of = np.array([data.draw(st.integers(0, 2)) for _ in rows])
    arrow = np.array([data.draw(st.integers(0, 6)) for _ in rows], dtype=np.uint64)
    chains = [np.flatnonzero(arrow == number).tolist() for number in range(1, 7)]
    role = np.full(len(rows), ROLES.index("passes"), dtype=np.uint8)
    for chain in filter(None, chains):
        role[chain[-1]], role[chain[0]] = ROLES.index("ends"), ROLES.index("begins")

    def part(rank: int, writer: ChromeWriter) -> None:
        track = writer.add_track("t", parent=writer.add_rank_page(f"rank {rank}"))
        numbers = np.flatnonzero(rank_of == rank)
        number = Argument(name="number", values=numbers)
        flows = Flows(ids=arrow[numbers], role=role[numbers])
        of_rank = slices_of([(*rows[n], 0) for n in numbers], NAMES, arguments=(number,), flows=(flows,))
        writer.write_slices(track, of_rank)

    document = chrome_document(*(lambda writer, rank=rank: part(rank, writer) for rank in range(3)))
    expected = Counter(pair for chain in chains for pair in pairwise(chain))
    assert Counter((row["begin"], row["end"]) for row in arrows(trace_processor, document)) == expected


def test_arrows_of_slices_that_start_together(trace_processor: TraceProcessor) -> None:
    """GIVEN slices that start together THEN the innermost of them has the arrows of all that have a duration.

    Slices of duration 0 keep their arrows.
    """
    times = [(0, 10, 0), (0, 10, 0), (0, 5, 0), (0, 0, 0), (0, 0, 0), (20, 0, 0)]

    def part(writer: ChromeWriter) -> None:
        process = writer.add_rank_page("rank 0")
        numbers = np.arange(len(times))
        for first, role in ((0, "begins"), (100, "ends")):
            roles = np.full(len(times), ROLES.index(role), dtype=np.uint8)
            flows = (Flows(ids=(numbers + 1).astype(np.uint64), role=roles),)
            number = Argument(name="number", values=numbers + first)
            moved = [(start + first, duration, name) for start, duration, name in times]
            track = writer.add_track(f"from {first}", parent=process)
            writer.write_slices(track, slices_of(moved, NAMES, arguments=(number,), flows=flows))

    rows = arrows(trace_processor, chrome_document(part))
    assert Counter((row["begin"], row["end"]) for row in rows) == {(2, 102): 3, (3, 103): 1, (4, 104): 1, (5, 105): 1}


def test_no_slice_is_lost_because_of_its_text(trace_processor: TraceProcessor) -> None:
    """The trace processor (v52) returns texts that have an escape and no quote with the escape in them."""
    expected = {
        "ends \\": "ends \\u005c", "\\": "\\u005c", "\0 \x1f\n": "\\u0000 \\u001f\\n", "\ud800": "?", "": "[No name]",
        '"\\': '"\\', '\\"': '\\"', "{}[],:": "{}[],:", "</script>": "</script>", "\u2028 \u202e": "\u2028 \u202e",
    }  # fmt: skip
    names = list(expected)

    def part(writer: ChromeWriter) -> None:
        process = writer.add_rank_page(names[0])
        for k, name in enumerate(names):
            text = Argument(name=name, values=np.array([k], dtype=np.int32), is_text=True)
            track = writer.add_track(name, parent=process, order=k)
            writer.write_slices(track, slices_of([(k, 1, k)], names, arguments=(text,)))

    trace_processor.load(chrome_document(part))
    assert trace_processor.errors() == []
    actual = [row["name"] for row in trace_processor.query("select name from slice order by ts")]
    assert actual == list(expected.values())
