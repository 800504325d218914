"""What Perfetto's UI shows first of a merged trace: which pages are open, which tracks pinned, which time is shown."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from benchmarks.simulated import START_NS, Cluster
from tests.unit.analysis.stage_lines import line
from tracekit.analysis.report import Report
from tracekit.findings.finding import Finding
from tracekit.model.metadata import Mesh
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


def test_ranks_are_in_the_order_of_their_pages() -> None:
    """GIVEN a mesh that counts its first dimension fastest THEN ranks are in the order of their coordinates."""
    run = data_parallel(4)
    meshes = [Mesh(names=["dp", "tp"], shape=[2, 2], coordinate=[rank % 2, rank // 2]) for rank in range(4)]
    run = replace(run, ranks=tuple(replace(s, mesh=mesh) for s, mesh in zip(run.ranks, meshes, strict=True)))
    actual = view(run, about(3))
    assert actual.ranks == (0, 2, 1, 3)
    assert actual.pinned[2:] == tuple(f"^rank {rank} waits( .*)?$" for rank in (0, 2, 1))


@pytest.mark.parametrize(("stages", "expected"), [(4, 4), (16, 16), (20, 16)])
def test_all_actions_of_a_pipeline_are_pinned_but_of_many_ranks(stages: int, expected: int) -> None:
    run, _ = line(stages, 3)
    pinned = view(run, about(1)).pinned
    assert pinned[: 2 + expected] == (
        *ANY_RUN.pinned,
        *(f"^rank {rank} actions( .*)?$" for rank in range(expected)),
    )
    assert not any("actions" in pattern for pattern in pinned[2 + expected :])


def test_of_many_pipelines_those_of_the_open_ranks_are_pinned() -> None:
    """GIVEN ten pipelines of two ranks, and findings of ranks 12 and 13 THEN their actions are pinned, and no others
    than those of the other open ranks' pipelines."""
    run, _ = line(20, 3)
    pairs = [
        replace(s, pipeline=replace(s.pipeline, ranks=(s.rank // 2 * 2, s.rank // 2 * 2 + 1)))  # type: ignore[type-var]
        for s in run.ranks
    ]
    actual = view(replace(run, ranks=tuple(pairs)), about(12, 13))
    acting = [int(pattern.split()[1]) for pattern in actual.pinned if "actions" in pattern]
    assert acting == sorted({rank // 2 * 2 + side for rank in actual.ranks for side in (0, 1)})
    assert {12, 13} <= set(acting)


@pytest.mark.parametrize(
    ("shown", "hidden"),
    [
        (["run", "run 9", "analysis", "rank 1 · node0", "rank 12", "rank 1 · node0 · dp1 tp0"],
         ["rank 2 · node0", "rank 11 · node0", "host", "device", "runs", "findings"]),
    ],
)  # fmt: skip
def test_patterns_choose_pages_by_their_whole_name(shown: list[str], hidden: list[str]) -> None:
    actual = OpeningView(ranks=(1, 12), acting=(1,))
    assert [name for name in [*shown, *hidden] if re.search(actual.expanded, name)] == shown
    names = ["rank 1 actions", "rank 1 actions · stage 3", "rank 1 actions · overlap 2", "rank 12 actions", "actions"]
    assert [name for name in names if re.search(actual.pinned[-1], name)] == names[:3]


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


def test_a_view_is_of_the_time_of_its_trace() -> None:
    """GIVEN a trace in Chrome's format, whose times count from a base THEN the view's do, too."""
    view = OpeningView(ranks=(1,), visible_ns=(START_NS, START_NS + STEP_NS))
    assert view.later(-START_NS) == OpeningView(ranks=(1,), visible_ns=(0, STEP_NS))
    assert ANY_RUN.later(-START_NS) == ANY_RUN


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
