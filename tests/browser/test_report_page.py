"""The HTML report in a real Chromium, from file://: its numbers, filter and keys, and names that want to be markup."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.browser.many_ranks import repeated
from tests.browser.report_page import opened
from tests.gpu_jobs import simulate, spec_of
from tests.places import DATA
from tests.unit.render.page.jobs import SLOW_RANK, job, made_up_lanes, report_of
from tracekit.analysis.report import Report, analyze
from tracekit.render.json_result import result_dict
from tracekit.render.page.build import page_data
from tracekit.render.page.contract import PageData
from tracekit.render.page.lanes import read_again
from tracekit.render.page.size import amounts_for

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u202e\x1b[31m"


@pytest.fixture(scope="module")
def ddp() -> tuple[Report, PageData]:
    """Two processes, of which rank 1 computes longer, and what their page consists of."""
    report = analyze(DATA / "ddp_slow_rank")
    return report, page_data(report, read_again, amounts_for(2))


@pytest.fixture(scope="module")
def mesh() -> PageData:
    """Eight simulated ranks in a mesh, of which one computes longer."""
    return page_data(report_of(job(8)), made_up_lanes, amounts_for(8))


def simulated(family: Any, cause: Any) -> PageData:
    return page_data(simulate(spec_of(family, seed=7, cause=cause)).report(), None, amounts_for(8))


def test_it_opens_from_a_file_without_an_error_or_a_request(
    browser: Any, ddp: tuple[Report, PageData], tmp_path: Path
) -> None:
    with opened(browser, ddp[1], tmp_path) as report:
        for figure in report.chart_ids:
            report.show(figure)

        assert report.errors == []
        assert report.requests == []
        assert {"causes", "bars", "rank-map", "heat", "kinds", "buckets", "lanes-chart"} <= set(report.chart_ids)


def test_the_tables_have_the_numbers_of_the_result(browser: Any, ddp: tuple[Report, PageData], tmp_path: Path) -> None:
    result = result_dict(ddp[0])
    causes = result["diagnosis"]["causes"]
    with opened(browser, ddp[1], tmp_path) as report:
        assert sorted(report.column("causes", "time a step")) == sorted(cause["time_ns"] for cause in causes)
        assert sum(report.column("causes", "time a step")) == result["diagnosis"]["step_ns"]
        fixes = [row["saving a step (ms)"] for row in report.table("waterfall") if row["kind"] == "change"]
        assert fixes == [fix["saves_ns_per_step"] for fix in result["whatif"]["fix"]]
        steps = {(row["rank"], row["step"]): row["step_ns"] for row in result["steps"]}
        assert {(row["rank"], row["step"]): row["step (ms)"] for row in report.table("heat")} == steps
        for column, key in (("bus bandwidth", "busbw_bps"), ("size", "size_bytes")):
            assert sorted(report.column("bandwidth", column)) == sorted(row[key] for row in result["collectives"])
        assert sorted(report.column("operators", "total")) == sorted(row["total_ns"] for row in result["operators"])
        assert report.column("clocks-table", "rank") == [row["rank"] for row in result["clock"]["ranks"]]


def test_a_chart_says_the_number_under_the_pointer(browser: Any, ddp: tuple[Report, PageData], tmp_path: Path) -> None:
    bars = ddp[1]["page"]["step"]["bars"]
    with opened(browser, ddp[1], tmp_path) as report:
        said = report.tooltip("bars", 400, 10)

    assert f"rank {bars[0]['rank']}" in said
    assert f"{bars[0]['step_ns'] / 1e6:.1f} ms" in said


def test_the_first_finding_comes_first_with_saving_and_command(
    browser: Any, ddp: tuple[Report, PageData], tmp_path: Path
) -> None:
    report, data = ddp
    finding = report.findings[0]
    with opened(browser, data, tmp_path) as shown:
        card = shown.page.locator("#finding-1")

        assert card.locator("h3").text_content() == finding.text
        assert card.locator(".saving [data-value]").get_attribute("data-value") == str(finding.saving_ns)
        assert card.locator("code").inner_text() == data["page"]["findings"][0]["open_command"]
        assert card.bounding_box()["y"] < 500  # on the first screen


def test_evidence_filters_every_chart_and_the_address_keeps_it(browser: Any, mesh: PageData, tmp_path: Path) -> None:
    place = next(i for i, finding in enumerate(mesh["page"]["findings"]) if finding["ranks"] == [SLOW_RANK])
    with opened(browser, mesh, tmp_path) as report:
        report.page.locator(f"#finding-{place + 1} button.primary").click()
        kept = report.hash

        assert f"ranks={SLOW_RANK}" in kept
        assert set(report.column("rank-map", "rank")) == {SLOW_RANK}
        assert set(report.column("heat", "rank")) == {SLOW_RANK}

    with opened(browser, mesh, tmp_path, hash_=kept) as again:
        assert set(again.column("heat", "rank")) == {SLOW_RANK}
        again.page.keyboard.press("Escape")
        assert "ranks" not in again.hash
        assert set(again.column("heat", "rank")) == set(range(8))


def test_a_drag_over_the_heat_map_chooses_ranks_and_steps(browser: Any, mesh: PageData, tmp_path: Path) -> None:
    with opened(browser, mesh, tmp_path) as report:
        report.show("heat")
        box = report.page.locator("#heat canvas").last.bounding_box()
        cell = (box["width"] - 58) / len(mesh["page"]["rank_steps"]["steps"])
        report.page.mouse.move(box["x"] + 58 + 0.5 * cell, box["y"] + 5)
        report.page.mouse.down()
        report.page.mouse.move(box["x"] + 58 + 1.5 * cell, box["y"] + 35, steps=3)
        report.page.mouse.up()

        steps = mesh["page"]["rank_steps"]["steps"]
        assert report.hash == f"#ranks=0-2&steps={steps[0]}-{steps[1]}"


def test_j_and_k_go_through_the_findings(browser: Any, mesh: PageData, tmp_path: Path) -> None:
    with opened(browser, mesh, tmp_path) as report:
        current = "document.querySelector('.finding[aria-current=true]').id"
        seen = [report.page.evaluate(current)]
        for key in "jjk":
            report.page.keyboard.press(key)
            report.page.wait_for_timeout(50)
            seen.append(report.page.evaluate(current))

    assert len(mesh["page"]["findings"]) == 2
    assert seen == ["finding-1", "finding-2", "finding-2", "finding-1"]


def test_names_from_traces_stay_text(browser: Any, ddp: tuple[Report, PageData], tmp_path: Path) -> None:
    """GIVEN names that are markup, turn the line around, colour a terminal, or have 1 MB WHEN the page shows them THEN
    they are text, and the page is no wider.
    """
    data: Any = copy.deepcopy(ddp[1])
    names = [HOSTILE, "x" * 1_000_000]
    for place, name in enumerate(names):
        data["result"]["operators"][place]["name"] = name
    data["page"]["header"]["title"] = HOSTILE
    data["result"]["findings"][0]["text"] = HOSTILE * 3
    data["page"]["step"]["causes"][0]["label"] = names[1]
    data["result"]["groups"][0]["desc"] = data["result"]["groups"][0]["dimension"] = HOSTILE
    for view in data["page"]["lanes"]:
        view["names"] = [HOSTILE] * len(view["names"])
    with opened(browser, data, tmp_path, width=400) as report:
        for figure in report.chart_ids:
            report.show(figure)
        shown = report.column("operators", "name")

        assert report.errors == []
        assert report.requests == []
        assert report.page.locator("img").count() == 0
        assert report.page.locator("script").count() == 2
        assert any(text.startswith("<img src=x onerror=alert(1)></script>") for text in shown)
        assert not any("\u202e" in text or "\x1b" in text or len(text) > 5_000 for text in shown)
        assert report.page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_window(browser: Any, mesh: PageData, tmp_path: Path, width: int) -> None:
    with opened(browser, mesh, tmp_path, width=width) as report:
        for figure in report.chart_ids:
            report.show(figure)

        assert report.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(
    ("family", "cause", "figures"),
    [("pipeline", "uneven_stage", {"actions", "bubbles", "stages"}), ("fsdp", "compute", {"ladder", "fsdp"})],
)
def test_a_form_of_parallelism_has_its_charts(
    browser: Any, tmp_path: Path, family: str, cause: str, figures: set[str]
) -> None:
    data = simulated(family, cause)
    with opened(browser, data, tmp_path) as report:
        for figure in report.chart_ids:
            report.show(figure)

        assert report.errors == []
        assert figures <= set(report.chart_ids)


def test_the_theme_is_that_of_the_system_until_one_is_chosen(browser: Any, mesh: PageData, tmp_path: Path) -> None:
    with opened(browser, mesh, tmp_path, color_scheme="dark") as report:
        theme = "document.documentElement.dataset.theme"
        system = report.page.evaluate(theme)
        report.page.locator("#theme").click()
        report.page.wait_for_selector("html[data-theme=light]")

        assert system == "dark"
        assert "theme=light" in report.hash


def test_every_chart_has_a_text_and_a_table(browser: Any, mesh: PageData, tmp_path: Path) -> None:
    with opened(browser, mesh, tmp_path) as report:
        for figure in report.chart_ids:
            report.show(figure)
            image = report.page.locator(f"#{figure} [role=img]")

            assert image.count() == 1, figure
            assert len(image.get_attribute("aria-label")) > 40, figure
            assert len(report.table(figure)) > 0, figure


@pytest.mark.parametrize(("ranks", "most_s"), [(1024, 2), (4096, 5)])
def test_a_large_run_is_soon_interactive(
    browser: Any, mesh: PageData, tmp_path: Path, ranks: int, most_s: float
) -> None:
    """Until the first screen is drawn, in CPU time of the page's thread: what other processes do does not count."""
    with opened(browser, repeated(mesh, ranks // 8), tmp_path) as report:
        session = report.page.context.new_cdp_session(report.page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        report.page.reload()
        report.page.wait_for_selector("html[data-ready]")
        report.page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
        report.show("rank-map")

        assert report.errors == []
        assert metrics["TaskDuration"] < most_s
        assert report.page.evaluate("page.rank_map.ranks.length") == ranks
