"""Details: all that an event's arguments say beyond its ids, from both decoders."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.read.decode.decoders import decode, native_decoder
from tracekit.model.events import ABSENT, EventTable
from tracekit.read.decode import portable
from tracekit.read.decode.extra_args import EXCLUDED_ARGS, split_members

EVENT = '{"ph": "X", "name": "kernel", "cat": "kernel", "pid": 0, "tid": 7, "ts": %d, "dur": 1%s}'


def decoded(folder: Path, *arguments: str) -> EventTable:
    """Of events with these `, "args": ...`."""
    path = folder / "rank0.json"
    path.write_text('{"traceEvents": [' + ",\n".join(EVENT % (at, said) for at, said in enumerate(arguments)) + "]}")
    return decode(path, extra_args=True).events


def texts(events: EventTable) -> list[str]:
    return ["" if text == ABSENT else events.strings[text] for text in events.extra_args.tolist()]


def told(events: EventTable) -> list[Any]:
    return [json.loads(text) if text else None for text in texts(events)]


@pytest.mark.parametrize("name", ["dlrm_8xV100", "single_rank", "gloo_rank34_of_300", "two_of_128"])
def test_every_argument_of_a_real_trace_is_there(real_traces: Path, name: str) -> None:
    """GIVEN traces of many writers WHEN read by the standard library THEN ids and details are all arguments of each."""
    for path in sorted((real_traces / name).glob("*.json.gz")):
        document = json.loads(gzip.decompress(path.read_bytes()))
        arguments = [event.get("args", {}) for event in document["traceEvents"] if event["ph"] == "X"]
        expected = [{key: value for key, value in said.items() if key not in EXCLUDED_ARGS} for said in arguments]
        events = decode(path, extra_args=True).events
        assert told(events) == [said or None for said in expected]
        # What is not in them but by the profiler's own counters, columns have.
        assert [said.get("correlation", ABSENT) for said in arguments] == events.correlation.tolist()
        assert [said.get("Sequence number", ABSENT) for said in arguments] == events.sequence_number.tolist()
        assert len(set(texts(events))) < len(events) / 3


def test_nothing_is_kept_unasked(real_traces: Path) -> None:
    (path, *_) = sorted((real_traces / "single_rank").glob("*.json.gz"))
    events = decode(path).events
    assert len(events.extra_args) == 0
    assert not any(text.startswith('{"') for text in events.strings)


def test_values_are_as_they_are_written(tmp_path: Path) -> None:
    """GIVEN numbers that no float64 holds, nested values, escapes THEN the details have them so, a member a line."""
    said = '{"a": 18446744073709551616, "b" : 0.10000000000000000001,'
    said += '"c":[ 1,\n{"d": null}], "e": "\\u00e9\\"}","f":\ttrue}'
    members = [
        '"a": 18446744073709551616',
        '"b": 0.10000000000000000001',
        '"c": [ 1, {"d": null}]',
        '"e": "\\u00e9\\"}"',
    ]
    (text,) = texts(decoded(tmp_path, f', "args": {said}'))
    assert split_members(text) == [*members, '"f": true']
    assert json.loads(text) == json.loads(said)


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        ', "args": null',
        ', "args": {}',
        ', "args": {"correlation": 3, "Ev Idx": 4}',
        ', "args": {"x": 1}, "args": {}',
    ],
)
def test_an_event_that_says_nothing_has_none(tmp_path: Path, arguments: str) -> None:
    assert told(decoded(tmp_path, arguments, ', "args": {"grid": [1, 1, 1]}')) == [None, {"grid": [1, 1, 1]}]


def test_of_two_values_the_last_counts(tmp_path: Path) -> None:
    events = decoded(tmp_path, ', "args": {"x": 1, "y": 2, "x": 3}', ', "args": {"z": 1}, "args": {"x": 3, "y": 2}')
    assert told(events) == [{"x": 3, "y": 2}] * 2


def test_events_that_differ_in_their_ids_share_a_text(tmp_path: Path) -> None:
    said = [f', "args": {{"External id": {n}, "grid": [1,2,3], "correlation": {n}, "Ev Idx": {n}}}' for n in range(9)]
    events = decoded(tmp_path, *said)
    assert len(set(events.extra_args.tolist())) == 1
    assert told(events) == [{"grid": [1, 2, 3]}] * 9
    assert events.correlation.tolist() == list(range(9))


@pytest.mark.parametrize(
    ("wounded", "expected"),
    [
        ('{"correlation": "no number", "x": [1]}', {"x": [1]}),
        ('{"x": "a\tb", "y": 1}', {"x": "a b", "y": 1}),
        ('{"x": "a\\qb", "y": 1}', {"x": "a\\qb", "y": 1}),
        ('{"x": "\\ud800", "y": 1}', {"x": "�", "y": 1}),
        ('{"correlation": [1], "x": 0.10, "y": [ 1,2 ]}', {"x": 0.1, "y": [1, 2]}),
    ],
)
def test_a_damaged_event_keeps_what_can_be_read(tmp_path: Path, wounded: str, expected: Any) -> None:
    """GIVEN one that the strict decoder refuses THEN its details are repaired with it."""
    whole = ', "args": {"grid": [1]}'
    found = told(decoded(tmp_path, whole, f', "args": {wounded}', whole))
    assert found == [{"grid": [1]}, expected, {"grid": [1]}]


def test_a_damaged_event_keeps_its_digits(tmp_path: Path) -> None:
    said = ('"x": 0.10000000000000000001', '"y": [ 1,2 ]', '"z": 1e5')
    events = decoded(
        tmp_path, *(f', "args": {{{", ".join((one, *said))}}}' for one in ('"correlation": [1]', '"Ev Idx": 1'))
    )
    assert texts(events) == ["{" + ",\n".join(said) + "}"] * 2


@pytest.mark.parametrize("key", [b"\xff", b"a\xff", b"correlation\xff"])
def test_a_key_that_is_no_utf8_costs_nothing_but_itself(tmp_path: Path, key: bytes) -> None:
    path = tmp_path / "rank0.json"
    said = b'{"traceEvents": [' + (EVENT % (1, ', "args": {"KEY": 1, "x": 2}')).encode().replace(b"KEY", key) + b"]}"
    path.write_bytes(said)
    assert told(decode(path, extra_args=True).events) == [{key.decode("utf-8", "replace"): 1, "x": 2}]


@pytest.mark.parametrize("odd", ["1e999", "9" * 6000, '"\xff"', "{}"])
def test_no_field_of_an_event_is_taken_for_its_arguments(tmp_path: Path, odd: str) -> None:
    path = tmp_path / "rank0.json"
    text = EVENT % (1, f', "args": {{"x": 1}}, "written_args": {odd}'), EVENT % (2, f', "written_args": {odd}')
    path.write_bytes(('{"traceEvents": [' + ", ".join(text) + "]}").encode("latin-1"))
    decoded_trace = decode(path, extra_args=True)
    assert told(decoded_trace.events) == [{"x": 1}, None]
    assert decoded_trace.notes == decode(path).notes


def test_no_depth_costs_more_than_the_event(tmp_path: Path) -> None:
    """GIVEN arguments that are nested about as deep as Python can go THEN all other events are there."""
    path = tmp_path / "rank0.json"
    for depth in range(880, 1030):
        nested = EVENT % (1, f', "args": {{"a": {"[" * depth}{"]" * depth}}}')
        path.write_text(f'{{"traceEvents": [{EVENT % (0, "")}, {nested}, {EVENT % (2, "")}]}}')
        assert len(portable.decode(path, extra_args=True).events) in {2, 3}, depth


def test_ids_between_details_do_not_make_texts_of_their_own(tmp_path: Path) -> None:
    """As the scanner has them, which takes details that stand side by side as one piece."""
    scanner = native_decoder().Scanner([], [], [b"correlation"])
    events = [EVENT % (n, f', "args": {{"x": 1, "correlation": {n}, "y": 2}}') for n in range(9)]
    text = bytearray((", ".join(events) + "]").encode() + bytes(64))
    scanner.scan(text, len(text) - 64)
    assert scanner.take()["extra_args_texts"] == [b'"x": 1,"y": 2']


def test_a_pair_has_those_of_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    pair = EVENT % (1, ', "args": {"x": 1}'), EVENT % (2, ', "args": {"y": 2}')
    begin, end = pair[0].replace('"X"', '"B"'), pair[1].replace('"X"', '"E"')
    path.write_text(f'{{"traceEvents": [{begin}, {end}]}}')
    assert told(decode(path, extra_args=True).events) == [{"x": 1}]
