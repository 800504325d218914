"""Damaged and hostile headers: no event is lost, and impossible values are left out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.unit.read.decode.damage import GOOD, decode_text, names, with_bad
from tests.unit.read.decode.decoders import decode
from tracekit.read.decode.event_array import search_events


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("baseTimeNanoseconds", "1e400"),
        ("baseTimeNanoseconds", "9" * 25),
        ("baseTimeNanoseconds", '"' + "9" * 5000 + '"'),
        ("baseTimeNanoseconds", '"²"'),
        ("baseTimeNanoseconds", '"--5"'),
        ("baseTimeNanoseconds", "null"),
        ("distributedInfo", '{"rank": "--1", "world_size": "²"}'),
        ("distributedInfo", '{"rank": -1, "world_size": -1}'),
        ("distributedInfo", '{"rank": 1000000000000, "world_size": 1000000000000}'),
        ("distributedInfo", '{"rank": 8, "world_size": 8}'),
        ("distributedInfo", '{"rank": true, "world_size": [2], "backend": 5, "pg_config": {"a": 1}}'),
        ("distributedInfo", '{"pg_config": [null, {"ranks": [null, "x", 1e9], "pg_name": 4}]}'),
        ("distributedInfo", "[" * 100_000),
        ("deviceProperties", '[null, {"name": 5}, {}]'),
        ("host_name", "[1]"),
        ("tracekit", "null"),
        ("tracekit", '{"version": 1}'),
        ("tracekit", "{" * 100_000),
        ("tracekit", '"' + "x" * 100_000 + '"'),
        ("unknown", "{NaN}"),
    ],
)
def test_a_damaged_header_costs_no_event(tmp_path: Path, key: str, value: str) -> None:
    event = '{"ph": "X", "name": "e0", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 1}'
    for text in (f'{{"{key}": {value}, "traceEvents": [{event}]}}', f'{{"traceEvents": [{event}], "{key}": {value}}}'):
        decoded = decode_text(tmp_path, text.encode())
        assert names(decoded) == ["e0"]
        assert decoded.header.metadata is None
        assert decoded.header.rank is None
        assert decoded.header.world_size is None


def test_the_good_keys_of_a_damaged_header_are_read(tmp_path: Path) -> None:
    text = with_bad("null", at=0).replace(b'{"distributedInfo"', b'{"bad": NaN, "a"b": 1, "distributedInfo"')
    decoded = decode_text(tmp_path, text)
    assert names(decoded) == GOOD
    assert decoded.header.rank == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m | {"world_size": 10**12},
        lambda m: m | {"rank": -4},
        lambda m: m | {"rank": 10**30},
        lambda m: m | {"steps": [{"step": 1, "start_ns": 10**30, "end_ns": None}]},
        lambda m: m | {"steps": [{"step": 10**30, "start_ns": 1, "end_ns": None}]},
        lambda m: m | {"groups": [m["groups"][0] | {"ranks": {"slice": [0, 10**12, 1]}}]},
        lambda m: m | {"groups": [m["groups"][0] | {"ranks": {"slice": [0, 4, 0]}}]},
        lambda m: m | {"clock": {"reference_rank": 0, "method": "store", "samples": [
            {"at_ns": 10**30, "offset_ns": 10**30, "error_ns": 0, "rtt_ns": 0}]}},
    ],
)  # fmt: skip
def test_hostile_metadata_is_refused_as_a_whole(
    tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    """GIVEN impossible numbers in the key `tracekit` WHEN decoded THEN the key is left out, with a note."""
    trace = TraceBuilder().step(1, 0, 10).op("e0", 0, 1).capture()
    document = json.loads(trace.text())
    document["tracekit"] = change(document["tracekit"])
    decoded = decode_text(tmp_path, json.dumps(document).encode())
    assert decoded.header.metadata is None
    assert [note.id for note in decoded.notes] == ["not-available"]
    assert len(decoded.events) == 2


@pytest.mark.parametrize(
    "mesh",
    [
        {"names": ["dp"], "shape": [2, 2], "coordinate": [0]},
        {"names": ["dp", "tp"], "shape": [2, 2], "coordinate": [0]},
        {"names": [], "shape": [], "coordinate": [0]},
        {"names": ["dp"], "shape": [2], "coordinate": [2]},
        {"names": ["dp"], "shape": [0], "coordinate": [0]},
    ],
)
def test_a_mesh_that_contradicts_itself_is_left_out_alone(tmp_path: Path, mesh: dict[str, Any]) -> None:
    document = json.loads(TraceBuilder().step(1, 0, 10).op("e0", 0, 1).capture().text())
    document["tracekit"]["mesh"] = mesh
    decoded = decode_text(tmp_path, json.dumps(document).encode())
    assert decoded.header.metadata is not None
    assert decoded.header.metadata.mesh is None
    assert [note.id for note in decoded.notes] == ["not-available"]
    assert "mesh" in decoded.notes[0].text


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([0, 1], (0, 1)),
        (["1", 0], (1, 0)),
        ([], ()),
        (None, ()),
        ([2**70, 0], None),
        ([None, "x"], None),
        ([True, False], None),
        ([0, 0], None),
        ([[0], 1], None),
        ({"a": 1}, None),
        ([-1], None),
        ([0.0], None),
    ],
)
def test_a_group_counts_if_all_its_ranks_can_be_read(
    tmp_path: Path, ranks: object, expected: tuple[int, ...] | None
) -> None:
    """Without one of them it would be another group. Its collectives name their ranks, too."""
    trace = TraceBuilder().op("e0", 0, 1)
    trace.header["distributedInfo"]["pg_config"] = [{"pg_name": "7", "pg_desc": "dp", "ranks": ranks}]
    decoded = decode_text(tmp_path, trace.text())
    assert [group.ranks for group in decoded.header.process_groups] == ([] if expected is None else [expected])
    assert [note.id for note in decoded.notes] == ["not-available"] * (expected is None)


def test_a_second_array_of_events_is_left_out_and_said(tmp_path: Path) -> None:
    event = '{"ph": "X", "name": "%s", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 1}'
    text = f'{{"traceEvents": [{event % "e0"}], "distributedInfo": {{"rank": 3}}, "traceEvents": [{event % "e1"}]}}'
    decoded = decode_text(tmp_path, text.encode())
    assert (names(decoded), decoded.header.rank) == (["e0"], 3)
    (note,) = decoded.notes
    assert (note.id, note.file) == ("duplicate-event", "rank0.json")


def log(level: str, message: str) -> str:
    return f"{level}:2024-05-22 17:15:22 2910249:2910249 CuptiActivityProfiler.cpp:976] {message}"


@pytest.mark.parametrize("tail", [False, True])
def test_warnings_and_errors_of_the_profiler_are_read(tmp_path: Path, tail: bool) -> None:
    """GIVEN the lists that Kineto wrote THEN errors and warnings are kept, and of the rest that it stopped early."""
    counts = "Record counts: Out-of-range = 4181, Blocklisted runtime = 37458, CUPTI stopped early? = "
    trace = TraceBuilder().op("e0", 0, 1)
    trace.header["INFO"] = [log("INFO", "Enabling GPU tracing"), log("INFO", counts + "0"), log("INFO", counts + "1")]
    trace.header["WARNING"] = [log("WARNING", "GPU trace is empty!"), 5, "without prefix"]
    trace.header["ERROR"] = [log("ERROR", "first"), log("ERROR", "second")]
    messages = decode_text(tmp_path, trace.text(tail=tail)).header.profiler_messages
    assert messages == ("first", "second", "GPU trace is empty!", "without prefix", counts + "1")


def test_a_log_with_unescaped_quotes_costs_only_itself(tmp_path: Path) -> None:
    """Kineto wrote arguments of events into its log, quotes included (its pull request 1336)."""
    text = (
        b'{"distributedInfo": {"rank": 3}, "traceEvents": [{"ph": "X", "name": "e0", "pid": 1, "tid": 1, "ts": 1, '
        b'"dur": 1}], "INFO": ["cudaEvent "event_id": 64"], "WARNING": ["INFO:1 2 3:4 a.cpp:5] seen"]}'
    )
    decoded = decode_text(tmp_path, text)
    assert (decoded.header.rank, decoded.header.profiler_messages) == (3, ("seen",))


@pytest.mark.parametrize("chunk_bytes", [20, 60, 100, 1000])
def test_where_events_begin_behind_damage_does_not_depend_on_how_much_is_read_at_once(chunk_bytes: int) -> None:
    """GIVEN brackets that damage has unbalanced, so that only the second key seems to be at the top THEN the first."""
    text = b'{"a": [[, "traceEvents": [{"name": "first"}], "b": ]], "traceEvents": [{"name": "second"}]}'
    chunks = (text[begin : begin + chunk_bytes] for begin in range(0, len(text), chunk_bytes))

    head, _ = search_events(chunks)

    assert head is not None
    assert text[head.position :].startswith(b'{"name": "first"}')


@pytest.mark.parametrize("between", ["", "\n", "\r\n\r\n"])
@pytest.mark.parametrize("tail", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_second_trace_behind_the_first_is_said_and_changes_nothing(
    tmp_path: Path, between: str, tail: bool, packed: bool
) -> None:
    """GIVEN two traces in a file, or one in each gzip member THEN the first is read, with its header and base time."""
    first, second = TraceBuilder(3, 8).op("e0", 0, 1), TraceBuilder(5, 9).op("e1", 7, 1)
    second.base_ns += 10**9
    texts = [first.text(tail=tail), between.encode() + second.text(tail=True)]
    path = tmp_path / "rank3.json"
    path.write_bytes(b"".join(map(gzip.compress, texts)) if packed else b"".join(texts))

    decoded = decode(path)

    expected = decode_text(tmp_path, texts[0])
    assert (names(decoded), decoded.header) == (["e0"], expected.header)
    assert decoded.events.start_ns.tolist() == expected.events.start_ns.tolist()
    (note,) = decoded.notes
    assert (note.id, note.severity) == ("duplicate-event", "warning")
    assert note.text == "rank3.json: it has a second array of events behind the first; only the first is used"


def test_a_second_array_document_is_said(tmp_path: Path) -> None:
    event = '{"ph": "X", "name": "e0", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 1}'
    decoded = decode_text(tmp_path, f"[{event}]\n[{event}]\n".encode())
    assert names(decoded) == ["e0"]
    assert [note.id for note in decoded.notes] == ["duplicate-event"]


@pytest.mark.parametrize("behind", ["\n", "\0\0", " null", '{"log": 1}'])
def test_what_follows_a_trace_and_is_none_gives_no_note(tmp_path: Path, behind: str) -> None:
    text = TraceBuilder(3, 8).op("e0", 0, 1).text(tail=True)
    decoded = decode_text(tmp_path, text + behind.encode())
    assert (decoded.header.rank, decoded.notes) == (3, ())
