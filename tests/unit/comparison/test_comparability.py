"""Which runs can be compared, and in what else they differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.comparison.compared_runs import STEADY, run_of_steps
from tracekit.comparison.comparability import find_differences, why_incomparable
from tracekit.explain.configuration import CONFIGURATION
from tracekit.model.metadata import Mesh, Settings
from tracekit.model.notes import Note
from tracekit.model.run import Run

RUN = run_of_steps(STEADY, path="main")


def with_ranks(**fields: Any) -> Run:
    """Return another run with other fields of its ranks."""
    return replace(RUN, paths=("branch",), ranks=tuple(replace(summary, **fields) for summary in RUN.ranks))


def mesh(*shape: int) -> Mesh:
    return Mesh(names=["dp", "tp"], shape=list(shape), coordinate=[0, 0])


def test_runs_of_one_job_can_be_compared() -> None:
    assert why_incomparable(RUN, with_ranks()) is None


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (run_of_steps(STEADY, ranks=4, path="branch"), "the number of ranks differs: 2 in main, 4 in branch"),
        (with_ranks(device="gpu"), "the device differs: CPU in main, GPU in branch"),
        (with_ranks(strategies=("ddp",)), "the parallelism differs: none in main, ddp in branch"),
        (
            replace(with_ranks(), ranks=RUN.ranks[:1]),
            "the set of usable ranks differs: 0-1 in main, 0 in branch",
        ),
        (with_ranks(steps=()), "branch has no step that all ranks completed"),
    ],
)
def test_the_reason_names_both_runs(candidate: Run, reason: str) -> None:
    assert why_incomparable(RUN, candidate) == reason


def test_a_rank_that_cannot_be_used_is_told_with_the_reason() -> None:
    """GIVEN a run of which the file of rank 1 was damaged, and other ranks were repaired."""
    text = "rank1.json.gz: not a trace; left out"
    damaged = Note(id="ignored-file", severity="warning", file="rank1.json.gz", text=text)
    repaired = Note(id="encoding", severity="warning", rank=0, text="rank 0: rank0.json.gz: 1 byte replaced")
    absent = Note(id="missing-rank", severity="warning", text="1 of 2 ranks; missing: 1")
    candidate = replace(with_ranks(), ranks=RUN.ranks[:1], notes=(repaired, absent, damaged))
    assert why_incomparable(RUN, candidate) == (
        "the set of usable ranks differs: 0-1 in main, 0 in branch (rank1.json.gz: not a trace; left out)"
    )


def test_another_mesh_is_another_job() -> None:
    two_by_one, one_by_two = with_ranks(mesh=mesh(2, 1)), with_ranks(mesh=mesh(1, 2))
    assert why_incomparable(two_by_one, one_by_two) == "the mesh differs: dp=2, tp=1 in branch, dp=1, tp=2 in branch"
    assert why_incomparable(two_by_one, two_by_one) is None
    assert why_incomparable(RUN, one_by_two) is None  # of a run without a mesh nothing is known


def configured(**values: Any) -> Run:
    settings = (Settings(component="ddp", values=values),)
    ranks = tuple(summary.with_part(CONFIGURATION, settings) for summary in RUN.ranks)
    return replace(RUN, ranks=ranks)


def test_settings_that_differ_are_listed() -> None:
    assert find_differences([configured(bucket_cap_mb=25)], configured(bucket_cap_mb=1, static_graph=True)) == [
        {"what": "ddp.bucket_cap_mb", "baseline": "25", "candidate": "1"},
        {"what": "ddp.static_graph", "baseline": None, "candidate": "True"},
    ]


def test_equal_runs_differ_in_nothing() -> None:
    assert find_differences([RUN, RUN], RUN) == []


def test_baselines_that_differ_are_listed_with_all_values() -> None:
    baselines = [configured(bucket_cap_mb=25), configured(bucket_cap_mb=50)]
    (row,) = find_differences(baselines, configured(bucket_cap_mb=25))
    assert row == {"what": "ddp.bucket_cap_mb", "baseline": "25 | 50", "candidate": "25"}


def test_other_steps_hosts_and_profiler_options_are_listed() -> None:
    others = run_of_steps(STEADY[:8]).ranks
    candidate = replace(RUN, ranks=tuple(replace(s, host="node7", profiler_options=("with_stack",)) for s in others))
    assert {(row["what"], row["baseline"], row["candidate"]) for row in find_differences([RUN], candidate)} == {
        ("host", "node0", "node7"),
        ("recorded_steps", "0-9", "0-7"),
        ("with_stack", "False", "True"),
    }
