"""Tables of text are what their columns and their table declare."""

from __future__ import annotations

from typing import Any

import pytest

from tracekit.model.table import Column, Display, Table
from tracekit.render.console import draw, write
from tracekit.render.grid import Grid, bars_of, grid_of

COLUMNS = (
    Column("rank", "int", "", ""),
    Column("steps", "int", "", ""),
    Column("cause", "str?", "", "", form="words", null="-"),
    Column("total_ns", "int?", "ns", ""),
    Column("idle_ns", "int?", "ns", ""),
    Column("size_bytes", "float?", "bytes", ""),
)
ROW = {"rank": 1234, "steps": 4, "cause": "host_bound", "total_ns": 8_000_000, "idle_ns": 2_000_000, "size_bytes": 1e6}


def cells(spec: str, *rows: dict[str, Any]) -> Grid:
    return grid_of(Table("times", COLUMNS, Display("Times", spec, most=2)), [ROW | row for row in rows])


@pytest.mark.parametrize(
    ("spec", "head", "cell"),
    [
        ("rank", "rank", "1234"),
        ("cause", "cause", "host bound"),
        ("size_bytes", "size", "1 MB"),
        ("time=total_ns", "time", "8.00"),
        ("{total_ns/steps}", "total", "2.00"),
        ("idle={idle_ns%total_ns}", "idle", "25%"),
        ("{total_ns} {idle_ns%total_ns}", "total", "8.00  25%"),
        ("rank: {rank}, {cause}", "rank", "rank: 1234, host bound"),
    ],
)
def test_a_cell_is_a_column_or_a_text_with_columns(spec: str, head: str, cell: str) -> None:
    grid = cells(spec, {})
    assert (list(grid.heads), [list(row) for row in grid.rows]) == ([head], [[cell]])


def test_what_is_unknown_is_said_once() -> None:
    unknown = {"total_ns": None, "idle_ns": None, "cause": None}
    grid = cells("{total_ns}: {idle_ns} | cause | {total_ns/steps} | {size_bytes} of {total_ns}", unknown)
    assert list(grid.rows[0]) == ["n/a", "-", "n/a", "1 MB of n/a"]


def test_a_cell_that_no_row_needs_is_left_out() -> None:
    assert list(cells("rank | idle_ns? | total_ns?", {"idle_ns": None}, {"idle_ns": None}).heads) == ["rank", "total"]
    assert list(cells("rank | idle_ns?", {"idle_ns": None}, {"idle_ns": 0}).heads) == ["rank", "idle"]


def test_the_first_column_and_texts_are_aligned_left() -> None:
    assert list(cells("rank | cause | total_ns | {steps} of {rank}", {}).left) == [True, True, False, False]


def test_rows_that_are_left_out_are_counted() -> None:
    table = Table("times", COLUMNS, Display("Times of {total_ns} ms", "rank", most=2, sort="idle_ns"))
    grid = grid_of(table, [ROW | {"rank": rank, "idle_ns": rank} for rank in range(3)])
    assert (grid.title, [row[0] for row in grid.rows]) == ("Times of 8.00 ms; 2 of 3 rows, --json has all", ["2", "1"])


def test_a_picture_has_a_bar_for_each_row_with_its_texts_as_label() -> None:
    display = Display("Times (ms)", "rank | cause | total_ns", bars="idle_ns | busy={total_ns-idle_ns}", most=1)
    bars = bars_of(Table("times", COLUMNS, display), [ROW, ROW | {"cause": None, "idle_ns": None}], most=2)

    assert (bars.title, bars.unit, list(bars.labels)) == ("Times", "ms", ["rank 1234, host bound", "rank 1234"])
    assert dict(bars.segments) == {"idle": [2.0, 0.0], "busy": [6.0, 0.0]}


def test_rows_with_less_than_the_least_share_are_counted_only() -> None:
    table = Table("times", (*COLUMNS, Column("share", "float", "ratio", "")), Display("Times", "rank", least="share"))
    grid = grid_of(table, [ROW | {"share": 0.5}, ROW | {"share": 0.001}])
    assert (grid.title, len(grid.rows)) == ("Times; 1 of 2 rows, --json has all", 1)


def test_heads_take_two_lines_rather_than_room() -> None:
    text = write(draw(cells("first of all=cause | of this step=steps", {})), width=80, color=False)
    assert [line.split() for line in text.splitlines()[2:4]] == [["first", "of", "this"], ["of", "all", "step"]]
