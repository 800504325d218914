"""The picture of a pipeline's step, in characters."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from tracekit.render.sections.pictures import pipeline_grid


def step(*rows: tuple[int, str, int, int, int]) -> list[dict[str, Any]]:
    """Rows of (rank, kind, microbatch, start, end)."""
    return [
        {"rank": rank, "step": 3, "stage": rank, "microbatch": number, "kind": kind}
        | {"start_ns": 1000 + start, "end_ns": 1000 + end, "wait_ns": 0}
        for rank, kind, number, start, end in rows
    ]


def rows_of(actions: list[dict[str, Any]], width: int) -> list[str]:
    title, *lines, _blank = pipeline_grid(actions, width)
    assert isinstance(title, Text)
    return [str(line) for line in lines]


GPIPE = step(
    *((0, "F", 0, 0, 10), (0, "F", 1, 10, 20), (0, "B", 0, 50, 70), (0, "B", 1, 70, 90)),
    *((1, "F", 0, 10, 20), (1, "F", 1, 20, 30), (1, "B", 0, 30, 50), (1, "B", 1, 50, 70)),
)


def test_forwards_are_digits_and_backwards_letters() -> None:
    assert rows_of(GPIPE, 8 + 9 * 2) == ["rank 0  0011······aaaabbbb", "rank 1  ··0011aaaabbbb····"]


def test_a_cell_shows_the_action_that_takes_most_of_it() -> None:
    assert rows_of(GPIPE, 8 + 10) == ["rank 0  01····aabb", "rank 1  ·01aaabb··"]


def test_weight_gradients_are_capitals_and_the_eleventh_microbatch_begins_anew() -> None:
    assert rows_of(step((0, "F", 10, 0, 40), (0, "I", 1, 40, 70), (0, "W", 1, 70, 100)), 18) == ["rank 0  0000bbbBBB"]


def test_without_actions_there_is_no_picture() -> None:
    assert pipeline_grid(step(), 80) == []


def test_many_ranks_are_cut_short() -> None:
    lines = rows_of(step(*((rank, "F", 0, rank, rank + 10) for rank in range(20))), 80)
    assert len(lines) == 17
    assert lines[-1].startswith("4 more ranks")
