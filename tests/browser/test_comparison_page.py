"""The page of a comparison in a real Chromium, from file://: its numbers, and names that want to be markup."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser.report_page import opened_text
from tests.unit.comparison.compared_runs import STEADY, longer, report_of_steps
from tracekit.comparison.comparison import Comparison, compare
from tracekit.render.comparison.document import comparison_html, comparison_json

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u202e\x1b[31m"


@pytest.fixture(scope="module")
def slower() -> Comparison:
    """Four ranks that load data, compute and transfer longer than in the baseline, and rank 2 longest."""
    candidate = report_of_steps(longer(6), ranks=4, slower_ms={2: 9}, data_ms=3, transfer_ms=12, path="branch")
    return compare([report_of_steps(STEADY, ranks=4, path="main")], candidate)


def test_it_opens_from_a_file_without_an_error_or_a_request(browser: Any, slower: Comparison, tmp_path: Path) -> None:
    with opened_text(browser, comparison_html(slower), tmp_path) as page:
        for figure in page.chart_ids:
            page.show(figure)

        assert page.errors == []
        assert page.requests == []
        assert page.chart_ids == ["interval", "causes", "lengths"]
        assert page.page.title() == "branch against main"
        assert page.page.locator("#verdict h2").inner_text().startswith("Slower: a step takes 20.00 ms (20.0%) longer")


def test_its_numbers_are_those_of_the_json(browser: Any, slower: Comparison, tmp_path: Path) -> None:
    result = json.loads(comparison_json(slower))
    change = result["change"]
    with opened_text(browser, comparison_html(slower), tmp_path) as page:
        assert page.column("causes", "change") == [row["change_ns"] for row in result["causes"]]
        assert sum(page.column("causes", "change")) == change["change_ns"]
        (interval,) = page.table("interval")
        assert interval["change (%)"] == pytest.approx(change["ratio"] - 1)
        assert interval["at least (%)"] == pytest.approx(change["ratio_low"] - 1)
        assert interval["at most (%)"] == pytest.approx(change["ratio_high"] - 1)
        lengths = page.column("lengths", "length")
        assert len(lengths) == 20
        assert sorted(lengths)[10:] == sorted(round(1e6 * (step + 30)) for step in STEADY)
        ranks = [row for row in result["explored"] if row["dimension"] == "rank"]
        assert page.column("explored-rank", "change") == [row["change_ns"] for row in ranks]


def test_a_chart_says_the_number_under_the_pointer(browser: Any, slower: Comparison, tmp_path: Path) -> None:
    with opened_text(browser, comparison_html(slower), tmp_path) as page:
        assert "+20.00 ms" in page.tooltip("causes", 600, 10)


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_window(
    browser: Any, slower: Comparison, tmp_path: Path, width: int, scheme: str
) -> None:
    with opened_text(browser, comparison_html(slower), tmp_path, width=width, color_scheme=scheme) as page:
        for figure in page.chart_ids:
            page.show(figure)
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.page.evaluate("document.documentElement.dataset.theme") == scheme


def test_hostile_names_stay_texts(browser: Any, tmp_path: Path) -> None:
    """GIVEN several baselines, few steps, and a folder whose name is markup."""
    baselines = [report_of_steps(STEADY[:3], path=HOSTILE), report_of_steps(STEADY, path="other")]
    comparison = compare(baselines, report_of_steps(longer(1), path=HOSTILE * 20))
    with opened_text(browser, comparison_html(comparison), tmp_path) as page:
        for figure in page.chart_ids:
            page.show(figure)
        assert page.errors == []
        assert page.page.locator("main img, main script").count() == 0
        assert page.page.locator("#verdict h2").inner_text().startswith("Inconclusive")
        assert {row["run"] for row in page.table("lengths")} == {"Baseline 1", "Baseline 2", "Candidate"}
