"""Arrows: one start, steps, one end, whichever ranks they touch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.chrome_documents import chrome_document, read_events, slices_of
from tracekit.render.chrome import ChromeWriter
from tracekit.render.merged.slices import Flows


def rank(*slices: tuple[int, int, bool]) -> Callable[[ChromeWriter], None]:
    """A rank whose slices (start, id of an arrow, whether it ends there) are on one track."""

    def write(writer: ChromeWriter) -> None:
        track = writer.add_track("t", parent=writer.add_process("rank", pid=1))
        ids = np.array([arrow for _, arrow, _ in slices], dtype=np.uint64)
        ends = np.array([end for *_, end in slices])
        flows = (Flows(ids=np.where(ends, 0, ids), ends=False), Flows(ids=np.where(ends, ids, 0), ends=True))
        writer.write_slices(track, slices_of([(at, 1, 0) for at, *_ in slices], ["a"], flows=flows))

    return write


def arrows(*ranks: Callable[[ChromeWriter], None]) -> dict[str, str]:
    """The letters of each arrow in order of time."""
    found: dict[str, str] = {}
    for event in sorted(read_events(chrome_document(*ranks), "stf"), key=lambda event: event["ts"]):
        assert event["bp"] == "e"
        found[event["id"]] = found.get(event["id"], "") + event["ph"]
    return found


def test_an_arrow_within_a_rank() -> None:
    assert arrows(rank((5, 1, False), (9, 1, True), (0, 0, False))) == {"0x1": "sf"}


def test_a_collective_over_ranks_whatever_their_order() -> None:
    """GIVEN members that start at 30, 10, 20 THEN the arrow starts on the second rank."""
    document = chrome_document(rank((30, 7, False)), rank((10, 7, False)), rank((20, 7, False)))
    assert [(event["ts"], event["ph"]) for event in read_events(document, "stf")] == [(30, "t"), (10, "s"), (20, "t")]


def test_a_message_between_ranks() -> None:
    assert arrows(rank((50, 2**64 - 1, True)), rank((40, 2**64 - 1, False))) == {"0xffffffffffffffff": "sf"}


def test_an_end_that_comes_first_starts_the_arrow() -> None:
    """A receive that begins before its send: joined in order of time all the same."""
    assert arrows(rank((30, 3, True)), rank((40, 3, False))) == {"0x3": "st"}
    assert arrows(rank((30, 3, True), (40, 3, False))) == {"0x3": "st"}


def test_a_chain_on_one_rank() -> None:
    assert arrows(rank((1, 4, False), (3, 4, True), (2, 4, False))) == {"0x4": "stf"}


def test_what_starts_together_is_joined_in_the_order_of_the_file() -> None:
    document = chrome_document(rank((5, 6, False), (5, 6, False)), rank((5, 6, True)))
    assert "".join(event["ph"] for event in read_events(document, "stf")) == "stf"


def test_a_slice_with_two_arrows_stands_before_both() -> None:
    def write(writer: ChromeWriter) -> None:
        track = writer.add_track("t", parent=writer.add_process("rank", pid=1))
        both = tuple(Flows(ids=np.array([k, k], dtype=np.uint64), ends=False) for k in (8, 9))
        writer.write_slices(track, slices_of([(0, 9, 0), (0, 9, 1)], ["outer", "inner"], flows=both))

    events = read_events(chrome_document(write), "Xst")
    assert [event.get("id", event["name"]) for event in events] == ["outer", "0x8", "0x9", "inner", "0x8", "0x9"]
    assert [event["ph"] for event in events] == ["X", "s", "s", "X", "t", "t"]


def test_only_arrows_between_ranks_are_carried_over() -> None:
    """GIVEN two slices joined on the rank, and one whose other end is elsewhere THEN the latter alone is handed on."""
    carried = []

    def write(writer: ChromeWriter) -> None:
        rank((0, 1, False), (1, 1, True), (2, 5, False))(writer)
        carried.append(writer.flows())

    chrome_document(write)
    assert [flows.id.tolist() for flows in carried] == [[5]]
