"""The progress file: what is written can be read, whatever a killed process has left of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec
import pytest

from tracekit.model.metadata import Progress, ProgressHeader
from tracekit.model.metadata.job import FILE_BYTES, RING_ENTRIES, pack_entry, pack_header
from tracekit.model.metadata.json_text import decode

Decoder = Callable[[bytes], ProgressHeader]

HEADER = ProgressHeader(
    run_id="run",
    attempt=1,
    rank=2,
    world_size=4,
    pid=5,
    host="a",
    host_id="b",
    elastic_id="myjob",
    agent="c",
    worker="d",
    restarts=0,
    first_call_ns=10,
)
DECODERS = (msgspec.json.Decoder(ProgressHeader).decode, partial(decode, kind=ProgressHeader))
"""The reader's, and that of the next attempt of a job."""


def content(entries: int) -> bytearray:
    written = bytearray(FILE_BYTES)
    packed = pack_header(HEADER)
    written[: len(packed)] = packed
    for number in range(entries):
        place, entry = pack_entry(number, number, 100 + number)
        written[place : place + len(entry)] = entry
    return written


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("entries", [0, 3, RING_ENTRIES, RING_ENTRIES + 3])
def test_the_last_entries_are_read_in_order(entries: int, decoder: Decoder) -> None:
    progress = Progress.parse(bytes(content(entries)), decoder)

    first = max(entries - RING_ENTRIES, 0)
    assert progress.header == HEADER
    assert progress.calls == tuple((number, 100 + number) for number in range(first, entries))
    assert progress.last_sign_ns == (100 + entries - 1 if entries else 10)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("size", [0, 10, FILE_BYTES // 4])
def test_a_file_that_is_none_is_refused(size: int, decoder: Decoder) -> None:
    with pytest.raises(ValueError, match=r"JSON|truncated|Expecting|Invalid"):
        Progress.parse(bytes(size), decoder)


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_file_that_was_cut_off_gives_what_is_there(decoder: Decoder) -> None:
    assert len(Progress.parse(bytes(content(RING_ENTRIES)[:-24]), decoder).calls) == RING_ENTRIES - 2


def test_a_header_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes"):
        pack_header(replace(HEADER, host="x" * 3000))
