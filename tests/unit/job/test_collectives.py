"""Collectives of ranks are matched to instances of the run. Times are microseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.loading.load import load
from tracekit.model.run import Run

Collective = tuple[str, int, dict[str, Any]]  # kind, when, further arguments
LoadRun = Callable[..., Run]


@pytest.fixture
def run_of(tmp_path: Path) -> LoadRun:
    """Load a run of one step from the collectives of each rank."""

    def run(*ranks: list[Collective], world_size: int | None = None, numbers: list[int] | None = None) -> Run:
        traces = []
        for rank, collectives in zip(numbers or range(len(ranks)), ranks, strict=True):
            trace = TraceBuilder(rank, world_size or len(ranks)).step(3, 0, 1000)
            trace.kernel("gemm", 0, 5, launched_at=0)
            for kind, at, arguments in collectives:
                trace.nccl(kind, at, 10, **({"launched_at": at - 1} | arguments))
            traces.append(trace)
        return load(write_run(tmp_path, traces))

    return run


def rows(run: Run) -> list[list[int]]:
    (group,) = run.collectives
    return group.row.tolist()


def unlinked(run: Run) -> list[tuple[str, str]]:
    return [(note.severity, note.text) for note in run.notes if note.id == "unlinked"]


def numbered(*ids: int, kind: str = "all_reduce") -> list[Collective]:
    return [(kind, 100 + 20 * place, {"Seq": number}) for place, number in enumerate(ids)]


def sized(*elements: int, kind: str = "all_reduce") -> list[Collective]:
    return [(kind, 100 + 20 * place, {"elements": count}) for place, count in enumerate(elements)]


def test_a_rank_that_lacks_an_instance_shifts_no_other(run_of: LoadRun) -> None:
    run = run_of(numbered(7, 8, 9, 10), numbered(7, 9, 10), numbered(7, 8, 9, 10))

    (group,) = run.collectives
    assert group.matched_by == "seq"
    assert group.ranks.tolist() == [0, 1, 2]
    assert rows(run) == [[0, 1, 2, 3], [0, -1, 1, 2], [0, 1, 2, 3]]
    ((severity, text),) = unlinked(run)
    assert severity == "warning"
    assert text.startswith("rank 1: collective 1 (all_reduce in step 3) of group default_pg is not in its trace")


def test_ids_far_apart(run_of: LoadRun) -> None:
    ids = (5, 1_000_000, 7_000_000_000)
    assert rows(run_of(numbered(*ids), numbered(ids[0], ids[2]))) == [[0, 1, 2], [0, -1, 1]]


def test_without_ids_collectives_are_matched_by_order(run_of: LoadRun) -> None:
    run = run_of(sized(10, 20, 30), sized(10, 20, 30))
    assert run.collectives[0].matched_by == "order"
    assert rows(run) == [[0, 1, 2], [0, 1, 2]]
    assert run.collectives[0].size_bytes.tolist() == [40, 80, 120]


def test_sizes_prove_the_places_of_collectives(run_of: LoadRun) -> None:
    run = run_of(sized(10, 20, 30, 40), sized(10, 30, 40), sized(10, 20, 30, 40))
    assert rows(run)[1] == [0, -1, 1, 2]


def test_a_place_that_sizes_do_not_prove_is_left_open(run_of: LoadRun) -> None:
    """GIVEN equal sizes, one of which a rank lacks WHEN matched THEN only the place of the different size is known."""
    run = run_of(sized(10, 10, 10, 40), sized(10, 10, 40), sized(10, 10, 10, 40))
    assert rows(run) == [[0, 1, 2, 3], [-1, -1, -1, 2], [0, 1, 2, 3]]
    assert any(
        "rank 1: 2 collectives of group default_pg have no known counterpart" in text for _, text in unlinked(run)
    )


@pytest.mark.parametrize("make", [numbered, sized])
def test_collectives_launched_before_the_recording_are_expected_to_lack_counterparts(
    make: Callable[..., list[Collective]], tmp_path: Path
) -> None:
    """GIVEN a GPU that still runs the step before as its recording begins THEN that all-reduce has no place, and no
    note asks where the other rank has it.
    """
    traces = [TraceBuilder(rank, 2).step(3, 0, 1000) for rank in range(2)]
    traces[1].kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 2, 40, stream=20)
    for trace in traces:
        trace.kernel("gemm", 0, 5, launched_at=0)
        for kind, at, arguments in make(10, 20, 30):
            trace.nccl(kind, at, 10, launched_at=at - 1, **arguments)

    run = load(write_run(tmp_path, traces))

    assert [len(summary.collectives) for summary in run.ranks] == [3, 4]
    assert rows(run) == [[0, 1, 2], [1, 2, 3]]
    assert unlinked(run) == []
    assert [note.rank for note in run.notes if note.id == "before-recording"] == [1]


def test_a_rank_with_more_than_the_others(run_of: LoadRun) -> None:
    run = run_of(sized(10, 20), sized(10, 15, 20), sized(10, 20))
    assert rows(run) == [[0, 1], [-1, -1], [0, 1]]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"elements": 2000}, "is of 8000 bytes there and of 4000 bytes on most ranks"),
        ({"dtype": "BFloat16", "elements": 2000}, "is of bfloat16 there and of float32 on most ranks"),
    ],
)
def test_a_rank_with_another_size_or_type_is_named(run_of: LoadRun, arguments: dict[str, Any], text: str) -> None:
    differing = numbered(1, 2)
    differing[1][2].update(arguments)
    run = run_of(numbered(1, 2), numbered(1, 2), differing)
    assert unlinked(run) == [("warning", f"rank 2: collective 1 of group default_pg {text}")]
    assert rows(run)[2] == [0, 1]


def test_a_collective_of_another_kind_is_not_matched(run_of: LoadRun) -> None:
    differing = [*numbered(1), ("all_gather", 130, {"Seq": 2})]
    run = run_of(numbered(1, 2), numbered(1, 2), differing)
    assert rows(run)[2] == [0, -1]
    assert ("warning", "rank 2: collective 1 of group default_pg is all_gather there and all_reduce on most ranks") in (
        unlinked(run)
    )


def test_all_to_all_of_different_sizes_is_no_mismatch(run_of: LoadRun) -> None:
    run = run_of([("all_to_all", 100, {"Seq": 1, "elements": 10})], [("all_to_all", 100, {"Seq": 1, "elements": 30})])
    assert unlinked(run) == []
    assert run.collectives[0].size_bytes.tolist() == [120]


def test_a_rank_without_any_collective_lacks_all(run_of: LoadRun) -> None:
    run = run_of(numbered(1), numbered(1), [])
    assert rows(run) == [[0], [0], [-1]]
