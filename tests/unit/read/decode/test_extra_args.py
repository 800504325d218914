"""Extra arguments: all arguments of an event without ids and counters, from both decoders."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.read.decode.decoders import decode, native_decoder
from tracekit.model.events import ABSENT, EventTable
from tracekit.read.decode import portable
from tracekit.read.decode.field_values import EXCLUDED_ARGS, split_members

EVENT = '{"ph": "X", "name": "kernel", "cat": "kernel", "pid": 0, "tid": 7, "ts": %d, "dur": 1%s}'


def decoded(folder: Path, *arguments: str) -> EventTable:
    """Decode events with these texts `, "args": ...`."""
    path = folder / "rank0.json"
    path.write_text('{"traceEvents": [' + ",\n".join(EVENT % (ts, text) for ts, text in enumerate(arguments)) + "]}")
    return decode(path, extra_args=True).events


def texts(events: EventTable) -> list[str]:
    return ["" if text == ABSENT else events.strings[text] for text in events.extra_args.tolist()]


def values(events: EventTable) -> list[Any]:
    return [json.loads(text) if text else None for text in texts(events)]


@pytest.mark.parametrize("name", ["dlrm_8xV100", "single_rank", "gloo_rank34_of_300", "two_of_128"])
def test_real_traces_keep_all_arguments(real_traces: Path, name: str) -> None:
    """GIVEN traces of many writers THEN ids and extra arguments are all arguments that the standard library reads."""
    for path in sorted((real_traces / name).glob("*.json.gz")):
        document = json.loads(gzip.decompress(path.read_bytes()))
        written = [event.get("args", {}) for event in document["traceEvents"] if event["ph"] == "X"]
        expected = [{key: value for key, value in args.items() if key not in EXCLUDED_ARGS} for args in written]
        events = decode(path, extra_args=True).events
        assert values(events) == [args or None for args in expected]
        # Ids are in columns.
        assert [args.get("correlation", ABSENT) for args in written] == events.correlation.tolist()
        assert [args.get("Sequence number", ABSENT) for args in written] == events.sequence_number.tolist()
        assert len(set(texts(events))) < len(events) / 3


def test_they_are_kept_only_on_request(real_traces: Path) -> None:
    (path, *_) = sorted((real_traces / "single_rank").glob("*.json.gz"))
    events = decode(path).events
    assert len(events.extra_args) == 0
    assert not any(text.startswith('{"') for text in events.strings)


def test_values_are_kept_as_they_are_written(tmp_path: Path) -> None:
    """GIVEN numbers that no float64 holds, nested values and escapes THEN they are kept literally, a member a line."""
    written = '{"a": 18446744073709551616, "b" : 0.10000000000000000001,'
    written += '"c":[ 1,\n{"d": null}], "e": "\\u00e9\\"}","f":\ttrue}'
    members = [
        '"a": 18446744073709551616',
        '"b": 0.10000000000000000001',
        '"c": [ 1, {"d": null}]',
        '"e": "\\u00e9\\"}"',
    ]
    (text,) = texts(decoded(tmp_path, f', "args": {written}'))
    assert split_members(text) == [*members, '"f": true']
    assert json.loads(text) == json.loads(written)


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
def test_an_event_without_extra_arguments_has_none(tmp_path: Path, arguments: str) -> None:
    assert values(decoded(tmp_path, arguments, ', "args": {"grid": [1, 1, 1]}')) == [None, {"grid": [1, 1, 1]}]


def test_the_last_of_two_values_counts(tmp_path: Path) -> None:
    events = decoded(tmp_path, ', "args": {"x": 1, "y": 2, "x": 3}', ', "args": {"z": 1}, "args": {"x": 3, "y": 2}')
    assert values(events) == [{"x": 3, "y": 2}] * 2


def test_events_that_differ_in_their_ids_share_a_text(tmp_path: Path) -> None:
    written = [
        f', "args": {{"External id": {n}, "grid": [1,2,3], "correlation": {n}, "Ev Idx": {n}}}' for n in range(9)
    ]
    events = decoded(tmp_path, *written)
    assert len(set(events.extra_args.tolist())) == 1
    assert values(events) == [{"grid": [1, 2, 3]}] * 9
    assert events.correlation.tolist() == list(range(9))


@pytest.mark.parametrize(
    ("damaged", "expected"),
    [
        ('{"correlation": "no number", "x": [1]}', {"x": [1]}),
        ('{"x": "a\tb", "y": 1}', {"x": "a b", "y": 1}),
        ('{"x": "a\\qb", "y": 1}', {"x": "a\\qb", "y": 1}),
        ('{"x": "\\ud800", "y": 1}', {"x": "�", "y": 1}),
        ('{"correlation": [1], "x": 0.10, "y": [ 1,2 ]}', {"x": 0.1, "y": [1, 2]}),
    ],
)
def test_a_damaged_event_keeps_what_can_be_read(tmp_path: Path, damaged: str, expected: Any) -> None:
    """GIVEN an event that the strict decoder refuses THEN its extra arguments are repaired too."""
    whole = ', "args": {"grid": [1]}'
    actual = values(decoded(tmp_path, whole, f', "args": {damaged}', whole))
    assert actual == [{"grid": [1]}, expected, {"grid": [1]}]


def test_a_damaged_event_keeps_its_digits(tmp_path: Path) -> None:
    members = ('"x": 0.10000000000000000001', '"y": [ 1,2 ]', '"z": 1e5')
    events = decoded(
        tmp_path, *(f', "args": {{{", ".join((first, *members))}}}' for first in ('"correlation": [1]', '"Ev Idx": 1'))
    )
    assert texts(events) == ["{" + ",\n".join(members) + "}"] * 2


@pytest.mark.parametrize("key", [b"\xff", b"a\xff", b"correlation\xff"])
def test_a_key_that_is_not_utf8_costs_only_itself(tmp_path: Path, key: bytes) -> None:
    path = tmp_path / "rank0.json"
    text = b'{"traceEvents": [' + (EVENT % (1, ', "args": {"KEY": 1, "x": 2}')).encode().replace(b"KEY", key) + b"]}"
    path.write_bytes(text)
    assert values(decode(path, extra_args=True).events) == [{key.decode("utf-8", "replace"): 1, "x": 2}]


@pytest.mark.parametrize("odd", ["1e999", "9" * 6000, '"\xff"', "{}"])
def test_no_other_field_is_taken_for_the_arguments(tmp_path: Path, odd: str) -> None:
    path = tmp_path / "rank0.json"
    text = EVENT % (1, f', "args": {{"x": 1}}, "written_args": {odd}'), EVENT % (2, f', "written_args": {odd}')
    path.write_bytes(('{"traceEvents": [' + ", ".join(text) + "]}").encode("latin-1"))
    decoded_trace = decode(path, extra_args=True)
    assert values(decoded_trace.events) == [{"x": 1}, None]
    assert decoded_trace.notes == decode(path).notes


def test_nesting_of_any_depth_costs_at_most_the_event(tmp_path: Path) -> None:
    """GIVEN arguments nested about as deeply as Python can read THEN all other events are there."""
    path = tmp_path / "rank0.json"
    for depth in range(880, 1030):
        nested = EVENT % (1, f', "args": {{"a": {"[" * depth}{"]" * depth}}}')
        path.write_text(f'{{"traceEvents": [{EVENT % (0, "")}, {nested}, {EVENT % (2, "")}]}}')
        assert len(portable.decode(path, extra_args=True).events) in {2, 3}, depth


def test_ids_between_extra_arguments_do_not_split_them(tmp_path: Path) -> None:
    """GIVEN events that differ in an id between two arguments THEN the scanner has one text for all."""
    scanner = native_decoder().Scanner([], [], [b"correlation"])
    events = [EVENT % (n, f', "args": {{"x": 1, "correlation": {n}, "y": 2}}') for n in range(9)]
    text = bytearray((", ".join(events) + "]").encode() + bytes(64))
    scanner.scan(text, len(text) - 64)
    assert scanner.take()["extra_args_texts"] == [b'"x": 1,"y": 2']


def test_a_pair_of_events_has_those_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    pair = EVENT % (1, ', "args": {"x": 1}'), EVENT % (2, ', "args": {"y": 2}')
    begin, end = pair[0].replace('"X"', '"B"'), pair[1].replace('"X"', '"E"')
    path.write_text(f'{{"traceEvents": [{begin}, {end}]}}')
    assert values(decode(path, extra_args=True).events) == [{"x": 1}]
