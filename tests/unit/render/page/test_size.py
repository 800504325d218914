"""How large a page may be, and what is left out where it would be larger."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.unit.render.page.jobs import job, made_up_lanes
from tracekit.api import analyze
from tracekit.render.page.build import page_data
from tracekit.render.page.contract import PageData
from tracekit.render.page.size import MOST_CODE_BYTES, amounts_for, cut_tables, script_json

# Sections with a row or more a rank.
LARGE = ("breakdown", "phases", "collectives", "overlap", "memory")


def data_with(**tables: Any) -> PageData:
    return cast(PageData, {"result": tables, "page": {}})


@pytest.mark.parametrize(("ranks", "size_bytes"), [(1, 2e6), (8, 2e6), (4096, 8e6), (16384, 8e6)])
def test_a_page_of_few_ranks_has_2_mb_and_of_many_8(ranks: int, size_bytes: float) -> None:
    assert amounts_for(ranks).size_bytes == size_bytes


def test_pages_of_more_ranks_may_be_larger() -> None:
    sizes = [amounts_for(2**k).size_bytes for k in range(15)]

    assert sizes == sorted(sizes)


@pytest.mark.parametrize(
    ("ranks", "steps"),
    [(8, 3), (8, 2000), (1024, 2), pytest.param(4096, 10, marks=pytest.mark.long)],
)
def test_pages_keep_their_size(ranks: int, steps: int) -> None:
    """GIVEN simulated runs of few and many ranks and steps THEN the data leaves room for all code, and the page says
    what it shows more coarsely.
    """
    amounts = amounts_for(ranks)
    data = page_data(analyze(job(ranks, steps), only=LARGE), made_up_lanes, amounts)

    assert len(script_json(data)) + MOST_CODE_BYTES <= amounts.size_bytes
    assert bool(data["page"]["cuts"]) == (ranks > 1024 or steps > 1000)
    assert data["page"]["rank_steps"]["binned"] == (ranks > 1024 or steps > 1000)


def test_of_a_large_table_the_rows_of_important_ranks_stay() -> None:
    rows = [{"rank": rank, "value": 10**9 + rank} for rank in range(1000)]
    data = data_with(ranks=rows, notes=[])

    (cut,) = cut_tables(data, {3, 700}, MOST_CODE_BYTES + 1000)

    assert [row["rank"] for row in data["result"]["ranks"]] == [3, 700]
    assert (cut["what"], cut["kept"], cut["total"]) == ("ranks", 2, 1000)
    assert cut["text"] == "The table ranks has 2 of 1,000 rows; tracekit analyze --json has all."
    assert cut["ranks"] == [3, 700]


def test_the_largest_table_is_cut_first_and_only_as_far_as_needed() -> None:
    large, small = [{"name": "x" * 50}] * 1000, [{"name": "y"}] * 60
    data = data_with(phases={"parts": large}, kernels=small)

    (cut,) = cut_tables(data, frozenset(), MOST_CODE_BYTES + 40_000)

    assert (cut["what"], cut["kept"], cut["ranks"]) == ("phases.parts", 500, None)
    assert len(data["result"]["kernels"]) == 60


def test_nothing_is_cut_from_a_page_that_fits() -> None:
    rows = [{"rank": 0}] * 1000

    assert cut_tables(data_with(ranks=rows), frozenset(), 2_000_000) == []


def test_a_page_that_cannot_be_cut_further_is_left_as_it_is() -> None:
    """GIVEN groups that alone are too large THEN they stay, since tables refer to them by their places."""
    data = data_with(groups=[{"id": i, "ranks": list(range(100))} for i in range(1000)])

    assert cut_tables(data, frozenset(), MOST_CODE_BYTES) == []
    assert len(data["result"]["groups"]) == 1000
