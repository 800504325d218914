"""Members of an incomplete row are placed where no other place is possible."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis.matching.collectives import certain_places


def places(members: str, row: str) -> list[int]:
    return certain_places(len(members), len(row), lambda member, place: members[member] == row[place]).tolist()


def test_a_gap_between_distinct_members_shifts_nobody() -> None:
    assert places("acd", "abcd") == [0, 2, 3]


def test_equal_neighbours_of_a_gap_have_no_certain_place() -> None:
    assert places("aab", "aaab") == [-1, -1, 3]


def test_a_row_that_does_not_fit_has_no_places() -> None:
    assert places("ba", "ab") == [-1, -1]


def test_no_members() -> None:
    assert places("", "ab") == []


@given(members=st.text("abc", max_size=4), row=st.text("abc", max_size=7))
def test_a_place_is_certain_if_all_layouts_share_it(members: str, row: str) -> None:
    layouts = [
        layout
        for layout in combinations(range(len(row)), len(members))
        if all(members[i] == row[place] for i, place in enumerate(layout))
    ]
    expected = [
        next(iter(here)) if len(here := {layout[i] for layout in layouts}) == 1 else -1 for i in range(len(members))
    ]
    assert places(members, row) == expected
