"""The heat map of ranks and steps: one number per rank and step, or the maximum of neighbours where there are many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tracekit.model.events import Float64, Int64
from tracekit.model.run import Run
from tracekit.render.page.chart_contract import RankStepMetric, RankSteps

__all__ = ["METRICS", "MOST_ROWS", "rank_steps"]

MOST_ROWS = 1024
"""Ranks that are shown one by one; more are binned."""

METRICS: tuple[tuple[str, str, str], ...] = (
    ("step_ns", "step", "Length of the step on this rank."),
    ("lateness_ns", "lateness", "How long after the first rank it came to a collective of the step: the longest."),
    ("compute_ns", "compute", "Time covered by compute."),
    ("exposed_comm_ns", "exposed communication", "Communication that no compute covers, with waiting for others."),
    ("exposed_copy_ns", "exposed copies", "Copies that neither compute nor communication cover."),
    ("idle_ns", "idle", "Time that no lane covers."),
)


def rank_steps(run: Run, latest_ns: Mapping[tuple[int, int], int], hosts: Sequence[str], most_cells: int) -> RankSteps:
    """Return the numbers of every complete step of every measured rank.

    latest_ns: how late each rank came, by rank and step. hosts: names, which the result refers to. most_cells: how many
    cells a matrix may have; with more ranks or steps, neighbours share one.
    """
    ranks = [summary for summary in run.ranks if summary.is_measured]
    numbers = sorted({step.step for summary in ranks for step in summary.steps if step.complete})
    column = {number: i for i, number in enumerate(numbers)}
    values = np.full((len(METRICS), len(ranks), len(numbers)), np.nan)  # float64 holds times of up to 104 days exactly
    for row, summary in enumerate(ranks):
        for step in summary.steps:
            if step.complete:
                late_ns = latest_ns.get((summary.rank, step.step))
                values[:, row, column[step.step]] = (
                    step.step_ns,
                    np.nan if late_ns is None else late_ns,
                    step.compute_ns,
                    step.exposed_comm_ns,
                    step.exposed_copy_ns,
                    step.idle_ns,
                )
    ranks_a_row, steps_a_column = _bin_sizes(len(ranks), len(numbers), most_cells)
    row_first = np.arange(0, len(ranks), ranks_a_row)
    column_first = np.arange(0, len(numbers), steps_a_column)
    binned = _maxima(values, row_first, column_first)
    is_binned = ranks_a_row > 1 or steps_a_column > 1
    return RankSteps(
        binned=is_binned,
        text=_text(ranks_a_row, steps_a_column) if is_binned else None,
        ranks=[summary.rank for summary in ranks],
        steps=numbers,
        hosts=[None if summary.host is None else hosts.index(summary.host) for summary in ranks],
        row_first=row_first.tolist(),
        row_last=_last(row_first, len(ranks)),
        column_first=column_first.tolist(),
        column_last=_last(column_first, len(numbers)),
        metrics=[
            RankStepMetric(key=key, title=title, meaning=meaning, values=_plain(matrix))  # type: ignore[typeddict-item]
            for (key, title, meaning), matrix in zip(METRICS, binned, strict=True)
        ],
    )


def _bin_sizes(ranks: int, steps: int, most_cells: int) -> tuple[int, int]:
    """Return how many ranks share a row and how many steps a column."""
    ranks_a_row = -(-ranks // MOST_ROWS) if ranks else 1
    rows = -(-ranks // ranks_a_row) if ranks else 1
    columns = max(most_cells // max(rows, 1), 1)
    return ranks_a_row, max(-(-steps // columns), 1)


def _maxima(values: Float64, row_first: Int64, column_first: Int64) -> Float64:
    """Return the maximum of each bin that begins at these rows and columns, NaN where nothing is known."""
    if not values.size:
        return values
    low = np.where(np.isnan(values), -np.inf, values)
    low = np.maximum.reduceat(np.maximum.reduceat(low, row_first, axis=1), column_first, axis=2)
    return np.where(np.isneginf(low), np.nan, low)


def _plain(matrix: Float64) -> list[int | None]:
    return [None if np.isnan(value) else int(value) for value in matrix.ravel().tolist()]


def _last(first: Int64, count: int) -> list[int]:
    return [*(first[1:] - 1).tolist(), count - 1] if count else []


def _text(ranks_a_row: int, steps_a_column: int) -> str:
    amounts = ((ranks_a_row, "ranks a row"), (steps_a_column, "steps a column"))
    shared = " and ".join(f"{amount} {what}" for amount, what in amounts if amount > 1)
    return f"The map of ranks and steps has {shared}: a cell shows the maximum of these."
