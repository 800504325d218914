"""Connected items, by hand."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.stats.connected_components import DisjointSets, connected_components


def test_items_are_connected_directly_or_through_others() -> None:
    assert connected_components([]) == []
    assert connected_components([(3, 2), (5, 4), (0, 1), (2, 1), (3, 2), (1, 0)]) == [[0, 1, 2, 3], [4, 5]]


def test_an_item_that_is_connected_with_itself_is_alone() -> None:
    assert connected_components([(7, 7)]) == [[7]]


def test_two_sets_are_apart_until_they_are_joined() -> None:
    joined = DisjointSets()

    assert [joined.join(*pair) for pair in ((0, 1), (2, 3), (1, 0), (3, 0), (1, 2))] == [True, True, False, True, False]
    assert joined.sets() == [[0, 1, 2, 3]]


def test_random_pairs_connect_what_a_search_from_each_item_finds() -> None:
    rng = np.random.default_rng(3)
    pairs = [(a, b) for a, b in rng.integers(0, 60, (40, 2)).tolist()]
    reached = {item: {item} for pair in pairs for item in pair}
    for _ in pairs:
        for a, b in pairs:
            reached[a] |= reached[b]
            reached[b] |= reached[a]

    assert connected_components(pairs) == [
        list(items) for items in sorted({tuple(sorted(r)) for r in reached.values()})
    ]
