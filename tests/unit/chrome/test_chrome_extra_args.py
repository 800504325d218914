"""Extra arguments of slices, which are texts of JSON objects, among the arguments of a document."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest

from tests.unit.chrome.chrome_documents import BASE_NS, chrome_document, read_events, slices_of
from tests.unit.chrome.test_writer import HOSTILE, one_track
from tracekit.chrome import ChromeWriter, JsonStrings
from tracekit.model.events import ABSENT
from tracekit.render.slices import Argument


@pytest.mark.parametrize("beside", [True, False])
def test_extra_arguments_follow_the_others(beside: bool) -> None:
    """GIVEN extra arguments of slices with and without other arguments THEN their members are arguments as well."""
    kernel = '{"grid": [4, 1, 1], "est. %s %": 50, "flag" : true,\n\t"none": null, "o": {"a": {}, "b": [ ]}}'
    size = Argument(name="size", values=np.arange(4), present=np.array([beside, beside, False, False]))
    rows = [(i, 1, 0) for i in range(4)]
    events = one_track(slices_of(rows, ["a", kernel, "{}"], arguments=(size,), extra_args=[1, 2, 1, -1]))
    extra = {"grid": [4, 1, 1], "est. %s %": 50, "flag": True, "none": None, "o": {"a": {}, "b": []}}
    first, second = ({"size": 0}, {"size": 1}) if beside else ({}, None)
    assert [event.get("args") for event in events] == [first | extra, second, extra, None]
    assert list(events[0]["args"]) == [*first, *extra]


def test_numbers_of_extra_arguments_keep_their_digits() -> None:
    numbers = f"[0.10,1E+5,-0,1.5e-07,{2**63 - 1},{-(2**63)},0.1000000000000000055511151231257827]"
    document = io.BytesIO()
    writer = ChromeWriter(document, 0, base_ns=BASE_NS)
    track = writer.add_track("t", parent=writer.add_rank_page("rank 0"))
    writer.write_slices(track, slices_of([(0, 1, 0)], ["a", f'{{"n": {numbers}, "m": 1e3}}'], extra_args=[1]))
    assert f'"args":{{"n":{numbers},"m":1e3}}}}'.encode() in document.getvalue()


@pytest.mark.parametrize("number", [str(2**63), str(-(2**63) - 1), "9" * 5000, "1e999", "-1e999"])
def test_numbers_out_of_the_range_of_readers_are_text(number: str) -> None:
    def write(writer: ChromeWriter) -> None:
        track = writer.add_track("t", parent=writer.add_rank_page("rank 0"))
        writer.write_slices(
            track, slices_of([(0, 1, 0)], ["a", f'{{"n": {number}, "m": [-1, {number}]}}'], extra_args=[1])
        )

    (event,) = read_events(chrome_document(write))
    assert event["args"] == {"n": number, "m": [-1, number]}


def test_long_extra_arguments_are_written_in_blocks() -> None:
    """GIVEN 2000 slices with 20 kB of extra arguments each WHEN written THEN they come in blocks of about 4 MB."""
    sizes: list[int] = []

    class Pieces(io.BytesIO):
        def write(self, piece: Any, /) -> int:
            sizes.append(len(memoryview(piece)))
            return super().write(piece)

    document = Pieces()
    writer = ChromeWriter(document, 0, base_ns=BASE_NS)
    track = writer.add_track("t", parent=writer.add_rank_page("rank 0"))
    rows = [(i, 1, 0) for i in range(2000)]
    writer.write_slices(track, slices_of(rows, ["a", json.dumps({"s": "x" * 20_000})], extra_args=[1] * 2000))
    assert document.getvalue().count(b'"s":') == 2000
    assert 3e6 < max(sizes) < 5e6


@pytest.mark.parametrize("ascii_alone", [True, False])
def test_text_in_extra_arguments_is_unchanged(ascii_alone: bool) -> None:
    """GIVEN hostile texts as keys and values, in lists and objects too THEN they are read back unchanged."""
    expected = [{text: text, f"{text}.": [text, {text: [text]}]} for text in HOSTILE]
    texts = [json.dumps(each, ensure_ascii=ascii_alone) for each in expected]
    rows = [(i, 1, 0) for i in range(len(expected))]

    def write(writer: ChromeWriter) -> None:
        track = writer.add_track("t", parent=writer.add_rank_page("rank 0"))
        writer.write_slices(track, slices_of(rows, ["a", *texts], extra_args=[i + 1 for i in range(len(expected))]))

    document = chrome_document(write)
    assert [event["args"] for event in read_events(document)] == expected
    assert b"\\ud83d" not in document.lower()


def test_a_text_of_several_tables_is_encoded_once() -> None:
    calls: list[str] = []
    encoded = JsonStrings(lambda text: calls.append(text) or text.upper())
    ids = np.array([0, 1, 0, ABSENT], dtype=np.int32)
    assert encoded.of(["a", "b"], ids) == ["A", "B", "A", ""]
    assert encoded.of(["b", "a", "c"], ids) == ["B", "A", "B", ""]
    assert sorted(calls) == ["", "a", "b"]
