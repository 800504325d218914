"""One number per rank and step, or the maximum of neighbours where there are many."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.render.page.jobs import job
from tracekit.model.run import Run
from tracekit.render.page.chart_contract import RankSteps
from tracekit.render.page.charts import MOST_ROWS, rank_steps

HOSTS = [f"node{i}" for i in range(300)]


def steps_of(run: Run, most_cells: int = 10_000) -> RankSteps:
    return rank_steps(run, {(0, 1): 77}, HOSTS, most_cells)


def values(matrix: RankSteps, key: str = "step_ns") -> list[int | None]:
    return next(metric["values"] for metric in matrix["metrics"] if metric["key"] == key)


def test_few_ranks_and_steps_are_shown_one_by_one() -> None:
    run = job(4, steps=3)

    matrix = steps_of(run)

    assert (matrix["binned"], matrix["text"]) == (False, None)
    assert matrix["row_first"] == matrix["row_last"] == [0, 1, 2, 3]
    assert matrix["column_first"] == matrix["column_last"] == [0, 1, 2]
    assert values(matrix) == [step.step_ns for summary in run.ranks for step in summary.steps]


def test_lateness_is_null_where_it_is_not_known() -> None:
    late = values(steps_of(job(2, steps=2)), "lateness_ns")

    assert late == [None, 77, None, None]


def test_steps_that_are_not_complete_are_null() -> None:
    run = job(2, steps=2)
    first = run.ranks[0]
    cut = replace(first, steps=(first.steps[0], replace(first.steps[1], complete=False)))

    assert values(steps_of(replace(run, ranks=(cut, run.ranks[1]))))[:2] == [first.steps[0].step_ns, None]


def test_many_steps_share_columns_which_show_the_maximum() -> None:
    """GIVEN seven steps of two ranks and room for eight cells THEN two steps share a column, the last one alone."""
    run = job(2, steps=7)
    lengths = [[step.step_ns for step in summary.steps] for summary in run.ranks]

    matrix = steps_of(run, most_cells=8)

    assert matrix["column_first"] == [0, 2, 4, 6]
    assert matrix["column_last"] == [1, 3, 5, 6]
    assert matrix["text"] == "The map of ranks and steps has 2 steps a column: a cell shows the maximum of these."
    assert values(matrix) == [max(of_rank[i : i + 2]) for of_rank in lengths for i in (0, 2, 4, 6)]


@pytest.mark.parametrize("ranks", [1025, 2100])
def test_above_1024_ranks_neighbours_share_rows(ranks: int) -> None:
    """GIVEN a run of too many ranks THEN there are at most 1,024 rows, and none of its ranks is left out."""
    one = job(1, steps=1, tensor=1).ranks[0]
    summaries = [replace(one, rank=r, steps=(replace(one.steps[0], step_ns=r),)) for r in range(ranks)]

    matrix = rank_steps(replace(job(1, steps=1, tensor=1), ranks=tuple(summaries)), {}, HOSTS, 10_000)

    rows = len(matrix["row_first"])
    assert rows <= MOST_ROWS
    assert matrix["row_first"][0] == 0
    assert matrix["row_last"][-1] == ranks - 1
    assert [last + 1 for last in matrix["row_last"][:-1]] == matrix["row_first"][1:]
    assert values(matrix) == matrix["row_last"]  # the longest step of each row is that of its last rank


def test_a_run_without_complete_steps_has_an_empty_matrix() -> None:
    run = job(2, steps=1)
    matrix = steps_of(replace(run, ranks=tuple(replace(summary, steps=()) for summary in run.ranks)))

    assert (matrix["ranks"], matrix["steps"], values(matrix), matrix["binned"]) == ([0, 1], [], [], False)
