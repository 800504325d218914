"""Groups of collectives that name none: four ranks in a mesh of two by two, recorded by torch.profiler alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.builders import TraceBuilder, write_run
from tracekit.loading.load import load
from tracekit.model.run import Run

TENSOR, DATA, WORLD = 1000, 5000, 9000  # elements of what each dimension, and all ranks, reduce
GROUPS = {0: ((0, 1), (0, 2)), 1: ((0, 1), (1, 3)), 2: ((2, 3), (0, 2)), 3: ((2, 3), (1, 3))}


def mesh(folder: Path, reductions: Sequence[Sequence[tuple[int, int, int]]], steps: int = 3) -> Run:
    """Return a run of four ranks. reductions: by rank, the elements, start and end in each step, in microseconds."""
    traces = []
    for rank, of_rank in enumerate(reductions):
        trace = TraceBuilder(rank, 4)
        listed = [("0", (0, 1, 2, 3)), *((f"{rank}.{i}", members) for i, members in enumerate(GROUPS[rank]))]
        trace.header["distributedInfo"]["pg_config"] = [
            {"pg_name": name, "pg_desc": "", "backend_config": "cpu:gloo", "ranks": members} for name, members in listed
        ]
        for step in range(steps):
            trace.step(step, 100_000 * step, 100_000).op("aten::mm", 100_000 * step, 100)
            for elements, start, end in of_rank:
                trace.gloo("all_reduce", 100_000 * step + start, end - start, elements=elements)
        traces.append(trace)
    return load(write_run(folder, traces))


def members(run: Run) -> dict[int, set[tuple[int, ...]]]:
    """Return the ranks that are matched, by the elements of what they reduce."""
    result: dict[int, set[tuple[int, ...]]] = {}
    for matched in run.collectives:
        for size_bytes in set(matched.size_bytes.tolist()):
            result.setdefault(size_bytes // 4, set()).add(tuple(matched.ranks.tolist()))
    return result


def test_ranks_that_leave_together_are_the_group(tmp_path: Path) -> None:
    """GIVEN ranks 2 and 3, which come 20 ms later to the reductions of tensor parallelism."""
    early = [(TENSOR, 1000, 2000), (DATA, 30_000, 60_000), (WORLD, 70_000, 80_000)]
    late = [(TENSOR, 21_000, 22_000), (DATA, 59_000, 60_000), (WORLD, 70_000, 80_000)]
    other = [(TENSOR, 1000, 2000), (DATA, 30_000, 50_000), (WORLD, 70_000, 80_000)]
    last = [(TENSOR, 21_000, 22_000), (DATA, 49_000, 50_000), (WORLD, 70_000, 80_000)]

    run = mesh(tmp_path, [early, other, late, last])

    assert members(run) == {TENSOR: {(0, 1), (2, 3)}, DATA: {(0, 2), (1, 3)}, WORLD: {(0, 1, 2, 3)}}
    assert not [note for note in run.notes if note.id in ("unlinked", "clock-step")]
    assert {clock.offset_ns for clock in run.clocks} == {0}


def test_what_fits_no_group_is_matched_with_none(tmp_path: Path) -> None:
    """GIVEN reductions of which each ends before any other rank enters, as if clocks were not comparable."""
    run = mesh(tmp_path, [[(DATA, 10_000 * rank, 10_000 * rank + 1000)] for rank in range(4)])

    assert members(run) == {DATA: {(0,), (1,), (2,), (3,)}}
    (note,) = [note for note in run.notes if note.id == "unlinked"]
    assert note.text.startswith("12 collectives")
    assert {clock.offset_ns for clock in run.clocks} == {0}


def test_two_dimensions_that_fit_alike_are_not_told_apart(tmp_path: Path) -> None:
    """GIVEN ranks 0 and 3, which leave apart, and ranks 1 and 2 between them."""
    ends = (40_000, 41_000, 41_000, 42_000)

    run = mesh(tmp_path, [[(DATA, 30_000, end)] for end in ends])

    assert members(run) == {DATA: {(0, 1, 2, 3)}}
