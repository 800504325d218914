"""Waits for messages on a rank's page."""

from __future__ import annotations

import numpy as np

from benchmarks.exchanges import rank, recv, run_of, send
from tracekit.analysis.per_rank.options import StepSelection
from tracekit.analysis.timeline.parts import Waits
from tracekit.render.merged.derived_tracks import tracks_of_rank
from tracekit.render.merged.lateness import PeerWaits
from tracekit.render.merged.plan import plan_of


def waits(*bounds_ns: tuple[int, int]) -> Waits:
    since_ns, until_ns = np.array(bounds_ns, dtype=np.int64).T
    return Waits(since_ns=since_ns, until_ns=until_ns)


def rows(waits: PeerWaits) -> list[tuple[int, ...]]:
    columns = (waits.start_ns, waits.end_ns, waits.blamed_rank, waits.is_message, waits.step)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_a_wait_for_a_message_lasts_until_it_is_there() -> None:
    """GIVEN a rank that computes from 60 to 70 between two receives THEN it waited for the sender of each, from when it
    had nothing else to do. It did not wait for its send.
    """
    sender = [send(1, 50), send(1, 90)]
    receiver = [recv(0, 20, took_ns=40), recv(0, 61, took_ns=39), send(2, 105, took_ns=10)]
    run = run_of([rank(0, sender), rank(1, receiver, waits=waits((25, 60), (70, 100))), rank(2, [recv(1, 100)])])
    plan = plan_of(run).ranks[1]
    assert plan.waits is not None
    assert rows(plan.waits) == [(25, 60, 0, 1, 5), (70, 100, 0, 1, 5)]
    (track,) = [track.slices for track in tracks_of_rank(plan, StepSelection()) if track.name == "waits"]
    assert [track.strings[name] for name in track.name] == ["waits for rank 0"] * 2
    assert not [track for track in tracks_of_rank(plan, StepSelection(first=6)) if track.name == "waits"]


def test_one_wait_after_the_other_is_for_another_rank() -> None:
    """GIVEN a rank that had nothing to do until two messages arrived THEN it waited first for one sender and then for
    the other, at any time for one of them."""
    receiver = [recv(0, 20, took_ns=20), recv(2, 21, took_ns=79)]
    run = run_of([rank(0, [send(1, 30)]), rank(1, receiver, waits=waits((20, 100))), rank(2, [send(1, 90)])])
    actual = plan_of(run).ranks[1].waits
    assert actual is not None
    assert rows(actual) == [(20, 40, 0, 1, 5), (40, 100, 2, 1, 5)]
