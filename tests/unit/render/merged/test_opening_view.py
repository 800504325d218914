"""What Perfetto's UI shows first of a merged trace: which pages are open, which tracks pinned, which time is shown."""

from __future__ import annotations

import json

import pytest

from benchmarks.simulated import START_NS, Cluster
from tracekit.api import Report, analyze
from tracekit.findings.finding import Finding
from tracekit.model.run import Run
from tracekit.render.merged.opening_view import ANY_RUN, OpeningView, opening_view, view_in
from tracekit.render.merged.plan import plan_of

STEP_NS = 1_010_000  # compute and an all-reduce


def data_parallel(ranks: int) -> Run:
    """Five steps of 1.01 ms, in which the last rank computes for 1 ms and the others for 0.5 ms."""
    cluster = Cluster(ranks)
    for _ in cluster.steps(5):
        for rank in range(ranks):
            cluster.work(rank, compute=1_000_000 if rank == ranks - 1 else 500_000)
        cluster.collective(range(ranks), transfer=10_000)
    return cluster.run()


def view(run: Run, *findings: Finding) -> OpeningView:
    return opening_view(plan_of(run), Report(run=run, results={}, findings=findings))


def about(*ranks: int, step: int | None = None) -> Finding:
    return Finding(id="straggler", severity="warning", text="a finding", ranks=ranks, step=step)


def commands(view: OpeningView) -> list[tuple[str, str]]:
    """Return the commands and their patterns, all of which are of names."""
    parsed = json.loads(view.page_arguments["startupCommands"])
    assert {command["args"][1] for command in parsed} == {"name"}
    return [(command["id"].removeprefix("dev.perfetto."), command["args"][0]) for command in parsed]


def test_the_arguments_of_the_page_of_a_run() -> None:
    """GIVEN two ranks and a finding of step 3 THEN both pages are open, the findings, the steps and the waits of rank 0
    are pinned, and the time is that of the step with a fiftieth of it on both sides."""
    actual = view(data_parallel(2), about(1, step=3))
    assert commands(actual) == [
        ("ExpandTracksByRegex", "^(run|analysis|rank (0|1))( .*)?$"),
        ("PinTracksByRegex", "^findings( .*)?$"),
        ("PinTracksByRegex", "^steps( .*)?$"),
        ("PinTracksByRegex", "^rank 0 waits( .*)?$"),
    ]
    start_ns, margin_ns = START_NS + 3 * STEP_NS, STEP_NS // 50
    assert (actual.page_arguments["visStart"], actual.page_arguments["visEnd"]) == (
        str(start_ns - margin_ns),
        str(start_ns + STEP_NS + margin_ns),
    )


@pytest.mark.parametrize(
    ("step", "first", "last", "before", "after"),
    [(None, 2, 2, 1, 1), (0, 0, 0, 0, 1), (4, 4, 4, 1, 0)],
)
def test_the_time_is_within_the_trace(step: int | None, first: int, last: int, before: int, after: int) -> None:
    """GIVEN a finding of no step, the first, or the last one THEN the median or that step is shown, without the margin
    where the trace ends: the UI would ignore a time beyond it."""
    margin_ns = STEP_NS // 50
    assert view(data_parallel(2), about(1, step=step)).visible_ns == (
        START_NS + first * STEP_NS - before * margin_ns,
        START_NS + (last + 1) * STEP_NS + after * margin_ns,
    )


def test_at_most_four_ranks_are_open_among_them_those_of_the_findings() -> None:
    actual = view(data_parallel(64), about(41), about(7, 50))
    assert {41, 7} <= set(actual.ranks)
    assert len(actual.ranks) == 4
    assert list(actual.ranks) == sorted(actual.ranks)


def test_of_a_trace_whose_run_is_not_known_the_findings_are_pinned() -> None:
    assert commands(ANY_RUN) == [
        ("ExpandTracksByRegex", "^(run|analysis)( .*)?$"),
        ("PinTracksByRegex", "^findings( .*)?$"),
        ("PinTracksByRegex", "^steps( .*)?$"),
    ]
    assert ANY_RUN.page_arguments.keys() == {"startupCommands"}


@pytest.mark.parametrize(
    "expected",
    [
        OpeningView(ranks=(0, 12), acting=(0, 1, 12), waiting=(12,), visible_ns=(START_NS, START_NS + STEP_NS)),
        OpeningView(ranks=(3,)),
        ANY_RUN,
    ],
)
def test_a_file_carries_its_view(expected: OpeningView) -> None:
    assert view_in(b"\x0a\x07" + expected.note.encode() + b"\x0a") == expected


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"ranks=.* actions= waits= time_ns=",
        b"ranks=0 actions=)|( waits= time_ns=",
        b'ranks=0 actions= waits="} time_ns=',
        b"ranks=" + b"9" * 5000 + b" actions= waits= time_ns=",
        b"ranks=" + b"1," * 5000 + b"1 actions= waits= time_ns=",
    ],
)
def test_a_file_chooses_nothing_but_ranks_and_a_time(note: bytes) -> None:
    """GIVEN a file whose note has other than numbers THEN it is shown as one without a note."""
    assert view_in(note) == ANY_RUN


def test_of_a_blamed_rank_the_longest_wait_for_it_is_shown() -> None:
    """GIVEN a rank for which the other waits half a millisecond THEN that is shown, and as much before and after."""
    run = data_parallel(2)
    actual = opening_view(plan_of(run), analyze(run))
    start_ns, end_ns = actual.visible_ns or (0, 0)
    assert end_ns - start_ns == pytest.approx(1_500_000, abs=20_000)
    assert (start_ns - START_NS + 10_000) % STEP_NS < 30_000  # it begins with the step: the wait is its second half
