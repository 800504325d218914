"""The HTML report in a real Chromium, from file://: its numbers, filter and keys, and names that want to be markup."""

from __future__ import annotations

import copy
import csv
import io
import re
import struct
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.gpu_jobs import simulate, spec_of
from tests.browser.report_page import opened
from tests.places import DATA
from tests.unit.render.page.jobs import SLOW_RANK, job, made_up_lanes, report_of
from tracekit.render.json_result import result_dict
from tracekit.render.page.build import page_data
from tracekit.render.page.contract import PageData
from tracekit.render.page.lanes import read_again
from tracekit.render.page.size import amounts_for
from tracekit.report.report import Report, analyze

SVG = "{http://www.w3.org/2000/svg}"
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
        assert {"picture", "causes", "rank-map", "heat", "kinds", "buckets", "lanes-chart"} <= set(report.chart_ids)


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
        assert sorted(report.column("operators-table", "total")) == sorted(
            row["total_ns"] for row in result["operators"]
        )
        assert report.column("clocks-table", "rank") == [row["rank"] for row in result["clock"]["ranks"]]


def test_a_chart_says_the_number_under_the_pointer(browser: Any, ddp: tuple[Report, PageData], tmp_path: Path) -> None:
    with opened(browser, ddp[1], tmp_path) as report:
        said = report.tooltip("waterfall", 400, 10)

    assert "measured step" in said
    assert f"{ddp[1]['page']['step']['waterfall'][0]['to_ns'] / 1e6:.1f} ms" in said


OF_OTHER_KINDS = [pytest.param(figure, marks=pytest.mark.long) for figure in ("causes", "lengths")]


@pytest.mark.parametrize("figure", ["picture", "heat", "lanes-chart", *OF_OTHER_KINDS])
def test_a_chart_is_saved_as_svg_png_and_csv(
    browser: Any, ddp: tuple[Report, PageData], tmp_path: Path, figure: str
) -> None:
    """GIVEN a chart WHEN it is saved THEN the SVG has its title, summary and keys, and needs no style sheet. The PNG
    has twice its pixels each way, and the CSV has the numbers of the table.
    """
    with opened(browser, ddp[1], tmp_path) as report:
        rows = report.table(figure)
        drawing = ElementTree.fromstring(report.saved(figure, "SVG"))
        png = report.saved(figure, "PNG")
        lines = list(csv.reader(io.StringIO(report.saved(figure, "CSV").decode())))
        title, keys = report.page.locator(f"#{figure} h3").inner_text(), report.texts(f"#{figure} .legend li")
        summary = report.summary(figure)

        texts = ["".join(text.itertext()) for text in drawing.iter(f"{SVG}text")]
        names = {name for element in drawing.iter() for name in element.attrib}
        assert title in texts
        assert set(keys) <= set(texts)
        assert summary.split()[:3] == texts[1].split()[:3]
        assert "class" not in {name for element in drawing.iter(f"{SVG}rect") for name in element.attrib}
        assert not {"style", "onload"} & names
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        assert list(struct.unpack(">II", png[16:24])) == [
            int(2 * float(drawing.get(side))) for side in ("width", "height")
        ]
        assert len(lines) == len(rows) + 1
        for cells, row in zip(lines[1:], rows, strict=True):
            numbers = [value for value in row.values() if isinstance(value, int | float)]
            assert [float(cell) for cell, value in zip(cells, row.values(), strict=True) if value in numbers] == numbers
        assert report.errors == []
        assert report.requests == []


def test_no_text_of_a_csv_is_a_formula(browser: Any, ddp: tuple[Report, PageData], tmp_path: Path) -> None:
    data: Any = copy.deepcopy(ddp[1])
    for row, name in zip(data["result"]["operators"], ("=cmd()", " +1", "@a", 'say "no"'), strict=False):
        row["name"] = name
    with opened(browser, data, tmp_path) as report:
        report.show("operators-table")
        lines = list(csv.reader(io.StringIO(report.saved("operators-table", "CSV").decode())))

        assert {line[0] for line in lines} >= {"'=cmd()", "' +1", "'@a", 'say "no"'}


def test_numbers_of_a_column_have_one_unit_and_as_many_decimals(
    browser: Any, ddp: tuple[Report, PageData], tmp_path: Path
) -> None:
    with opened(browser, ddp[1], tmp_path) as report:
        report.page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        report.page.evaluate("drawCharts(true)")
        report.page.wait_for_selector("#lanes-chart table")
        columns = report.page.evaluate(
            """() => [...document.querySelectorAll("main table")].flatMap(({ tHead, tBodies: [body] }) =>
                [...tHead.rows[0].cells].map((_, at) => [...body.rows].map((row) => row.cells[at])
                    .filter((cell) => "value" in cell.dataset).map((cell) => cell.textContent)))"""
        )
        ends = report.page.evaluate("svgOf(charts.get('phases')).textContent.match(/[0-9.]+ (ms|us|s)/g)")

    decimals = [{len(text.partition(".")[2]) for text in column} for column in columns if column]
    assert len(decimals) > 40
    assert all(len(numbers) == 1 for numbers in decimals)
    assert len({end.split()[1] for end in ends}) == 1


def test_arrivals_are_dots_by_the_rank_that_came_last(
    browser: Any, ddp: tuple[Report, PageData], tmp_path: Path
) -> None:
    """GIVEN a few collectives, for most of which rank 1 comes last THEN there is a dot for each instance."""
    skews = ddp[1]["page"]["skew"]
    last = Counter(rank for skew in skews for rank in skew["last_rank"])
    with opened(browser, ddp[1], tmp_path) as report:
        report.show("skew")
        drawn = report.page.evaluate(
            "[0, 1].map((kind) => svgOf(charts.get('skew')).querySelectorAll(`path[fill='${markOf(kind)}']`).length)"
        )
        keys = report.texts("#skew .legend li")

    assert keys[0] == "rank 1 last"
    assert drawn == [last[rank] + 1 for rank, _ in last.most_common()] + [0] * (2 - len(last))  # and the key
    assert sum(map(len, (skew["step"] for skew in skews))) == sum(last.values())


def test_the_section_that_is_read_is_marked(browser: Any, ddp: tuple[Report, PageData], tmp_path: Path) -> None:
    with opened(browser, ddp[1], tmp_path) as report:
        current = "nav .link[aria-current=true]"
        seen = [report.texts(current)]
        for section in ("communication", "quality"):
            report.page.evaluate("id => document.getElementById(id).scrollIntoView()", section)
            report.page.wait_for_timeout(100)
            seen.append(report.texts(current))

    assert seen == [["Verdict"], ["Communication"], ["Data quality"]]


def test_its_title_is_the_run_and_steps_have_their_sign(
    browser: Any, ddp: tuple[Report, PageData], tmp_path: Path
) -> None:
    with opened(browser, ddp[1], tmp_path, hash_="#steps=5") as report:
        for figure in report.chart_ids:
            report.show(figure)
        shown = " ".join(report.texts(".summary, nav, dd, .controls"))

        assert report.page.title() == "ddp_slow_rank"
        assert report.page.locator("h1").inner_text() == "ddp_slow_rank"
        assert "step #5" in report.page.locator("#filter-text").inner_text()
        assert re.findall(r"\b[Ss]teps? \d", shown) == []
        assert len(re.findall(r"\b[Ss]tep #\d", shown)) > 3


def test_the_picture_has_a_row_for_each_rank_and_the_wait_of_its_arrow(
    browser: Any, ddp: tuple[Report, PageData], tmp_path: Path
) -> None:
    """GIVEN a rank that computes longer THEN it is on top, and the wait is said, drawn, and reached by keyboard."""
    picture = ddp[1]["page"]["picture"]
    assert picture is not None
    assert picture["arrow"] is not None
    wait_ms = f"{(picture['arrow']['end_ns'] - picture['arrow']['start_ns']) / 1e6:.1f}"
    with opened(browser, ddp[1], tmp_path) as report:
        rows = report.page.locator("#picture [role=listitem]")
        assert [rows.nth(at).locator(".label").text_content() for at in range(2)] == ["rank 1", "rank 0"]
        assert wait_ms in report.summary("picture")
        assert wait_ms in rows.nth(1).get_attribute("aria-label")
        rows.nth(0).focus()
        assert report.page.evaluate("document.activeElement.getAttribute('role')") == "listitem"
        steps = {row["rank"]: row for row in ddp[1]["result"]["steps"] if row["step"] == picture["step"]}
        for row in report.table("picture"):
            of_rank = steps[int(row["rank"].removeprefix("rank "))]
            assert (row["compute (ms)"], row["step (ms)"]) == (of_rank["compute_ns"], of_rank["step_ns"])


def test_the_first_finding_comes_first_with_saving_and_command(
    browser: Any, ddp: tuple[Report, PageData], tmp_path: Path
) -> None:
    report, data = ddp
    finding = report.findings[0]
    with opened(browser, data, tmp_path) as shown:
        card = shown.page.locator("#finding-1")

        assert card.locator("h3").text_content() == finding.text
        assert card.locator(".saving [data-value]").get_attribute("data-value") == str(finding.saving_ns)
        assert [button.inner_text() for button in card.get_by_role("button").all() if button.is_visible()] == [
            "Show evidence"
        ]
        commands = [data["page"]["findings"][0][key] for key in ("open_command", "explain_command")]
        assert card.locator(".command code").all_text_contents() == commands
        assert finding.id in commands[1]
        assert card.bounding_box()["y"] < 500  # on the first screen


def test_a_finding_is_copied_as_markdown(browser: Any, mesh: PageData, tmp_path: Path) -> None:
    with opened(browser, mesh, tmp_path, permissions=["clipboard-read", "clipboard-write"]) as report:
        report.page.locator("#finding-2 button.primary").focus()
        for key in ("Tab", "Enter", "Tab", "Tab", "Tab", "Enter"):  # opens the menu, and goes beyond its commands
            report.page.keyboard.press(key)
        report.page.locator("#finding-2").get_by_role("button", name="Copied").wait_for()

        assert report.page.evaluate("navigator.clipboard.readText()") == mesh["page"]["findings"][1]["markdown"]


def test_without_a_finding_it_says_what_was_looked_at(browser: Any, tmp_path: Path) -> None:
    """GIVEN one section of the report, which finds nothing THEN the page does not claim that of the run."""
    data = page_data(analyze(job(8), only="memory"), None, amounts_for(8))
    with opened(browser, data, tmp_path) as report:
        assert report.page.locator("#verdict h2").inner_text().endswith("in the sections that were asked for.")
        assert report.errors == []


def test_evidence_filters_every_chart_and_the_address_keeps_it(browser: Any, mesh: PageData, tmp_path: Path) -> None:
    place = next(i for i, finding in enumerate(mesh["page"]["findings"]) if finding["ranks"][:1] == [SLOW_RANK])
    ranks = set(mesh["page"]["findings"][place]["ranks"])
    with opened(browser, mesh, tmp_path) as report:
        report.page.locator(f"#finding-{place + 1} button.primary").click()
        kept = report.hash

        assert "ranks=" in kept
        assert set(report.column("rank-map", "rank")) == ranks
        assert set(report.column("heat", "rank")) == ranks

    with opened(browser, mesh, tmp_path, hash_=kept) as again:
        assert set(again.column("heat", "rank")) == ranks
        again.page.keyboard.press("Escape")
        assert "ranks" not in again.hash
        assert set(again.column("heat", "rank")) == set(range(8))


def test_the_map_is_of_the_chosen_step(browser: Any, mesh: PageData, tmp_path: Path) -> None:
    """GIVEN steps that grow longer WHEN one of them is chosen THEN ranks are shown as they were in this one."""
    step = mesh["page"]["rank_steps"]["steps"][2]
    rows = {row["rank"]: row for row in mesh["result"]["steps"] if row["step"] == step}
    with opened(browser, mesh, tmp_path, hash_=f"#steps={step}&map=compute_ns") as report:
        least = f"{min(row['compute_ns'] for row in rows.values()) / 1e6:.2f} ms (rank 0)"
        most = f"{rows[SLOW_RANK]['compute_ns'] / 1e6:.2f} ms (rank {SLOW_RANK})"
        assert report.summary("rank-map").endswith(f"From {least} to {most}.")


def test_charts_say_which_parts_of_the_filter_they_ignore(browser: Any, mesh: PageData, tmp_path: Path) -> None:
    with opened(browser, mesh, tmp_path, hash_=f"#ranks={SLOW_RANK}&steps=1") as report:
        assert report.summary("waterfall").endswith("Not filtered by rank, step.")
        assert report.summary("idle").endswith(f"mean of rank {SLOW_RANK}. Not filtered by step.")
        assert "Not filtered" not in report.summary("heat")


def test_means_are_over_all_ranks_though_rows_are_left_out(browser: Any, mesh: PageData, tmp_path: Path) -> None:
    """GIVEN a table of which the file has the rows of one rank THEN its chart is of all ranks, and of chosen ones it
    names the rank that it has.
    """
    data: Any = copy.deepcopy(mesh)
    rows = mesh["result"]["idle_causes"]
    data["result"]["idle_causes"] = kept = [row for row in rows if row["rank"] == SLOW_RANK]
    data["page"]["cuts"] = [{"what": "idle_causes", "text": "", "total": 0, "kept": 0, "ranks": [SLOW_RANK]}]
    steps = {row["rank"]: row["steps"] for row in mesh["result"]["ranks"]}
    causes = {row["cause"] for row in rows}
    mean_ns = {c: sum(row["total_ns"] / steps[row["rank"]] for row in rows if row["cause"] == c) / 8 for c in causes}
    with opened(browser, data, tmp_path) as report:
        assert sorted(report.column("idle", "mean a step")) == pytest.approx(sorted(mean_ns.values()))
        report.page.evaluate(f"setState({{ ranks: [0, {SLOW_RANK}] }})")
        report.page.wait_for_selector("#idle .summary:has-text('lacks')")

        assert f"mean of rank {SLOW_RANK} (this file lacks the other chosen ones)" in report.summary("idle")
        assert sorted(report.column("idle", "mean a step")) == sorted(row["total_ns"] / 4 for row in kept)


def test_the_map_is_coloured_by_what_differs(browser: Any, mesh: PageData, tmp_path: Path) -> None:
    """GIVEN ranks whose steps are as long and that come at the same time, but of which one causes delay THEN the map
    shows the delay, and the lateness where ranks come late.
    """
    alike: Any = copy.deepcopy(mesh)
    for metric in alike["page"]["rank_map"]["metrics"]:
        if metric["key"] in ("step_ns", "lateness_ns"):
            metric["values"] = [1_000_000 + rank for rank in range(8)]
    said = []
    for data in (mesh, alike):
        with opened(browser, data, tmp_path) as report:
            said.append(report.summary("rank-map"))

    assert "Colour: lateness." in said[0]
    assert "Colour: caused delay." in said[1]
    assert said[1].endswith(f"(rank {SLOW_RANK}).")


def test_the_map_shows_the_groups_of_one_kind(browser: Any, mesh: PageData, tmp_path: Path) -> None:
    """GIVEN eight ranks of which two neighbours form a model replica THEN pairs have a colour each."""
    with opened(browser, mesh, tmp_path, hash_="#map=group+2-rank") as report:
        report.show("rank-map")
        legend = report.page.locator("#rank-map .legend li").all_inner_texts()

        assert legend == ["ranks 0-1", "ranks 2-3", "ranks 4-5", "ranks 6-7"]
        assert "Ranks of one group have the same colour and pattern; 4 groups." in report.summary("rank-map")
        groups = dict(zip(report.column("rank-map", "rank"), report.column("rank-map", "2-rank groups"), strict=True))
        assert groups == {rank: f"ranks {rank // 2 * 2}-{rank // 2 * 2 + 1}" for rank in range(8)}


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


def test_names_are_searched_and_the_address_keeps_what_for(
    browser: Any, ddp: tuple[Report, PageData], tmp_path: Path
) -> None:
    named = {row["name"] for row in ddp[1]["result"]["operators"] if "mm" in row["name"].lower()}
    with opened(browser, ddp[1], tmp_path) as report:
        report.page.locator("#kernels input").fill("MM")

        assert set(report.column("operators-table", "name")) == named
        assert "look=MM" in report.hash
    assert 0 < len(named) < len(ddp[1]["result"]["operators"])


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
        shown = report.column("operators-table", "name")

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
        assert report.cut_off() == []


@pytest.mark.parametrize(
    ("family", "cause", "figures"),
    [("pipeline", "uneven_stage", {"actions", "bubbles", "stages"}), ("fsdp", "compute", {"ladder", "fsdp"})],
)
def test_a_form_of_parallelism_has_its_charts(
    browser: Any, tmp_path: Path, family: str, cause: str, figures: set[str]
) -> None:
    data = simulated(family, cause)
    with opened(browser, data, tmp_path, width=400) as report:
        for figure in report.chart_ids:
            report.show(figure)

        assert report.errors == []
        assert figures <= set(report.chart_ids)
        assert report.cut_off() == []


def test_shares_are_written_as_the_terminal_writes_them(
    browser: Any, ddp: tuple[Report, PageData], tmp_path: Path
) -> None:
    with opened(browser, ddp[1], tmp_path) as report:
        for figure in report.chart_ids:
            report.show(figure)
        text = report.page.locator("body").inner_text()

    assert re.findall(r"\d %", text) == []
    assert re.search(r"\d%", text)


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
            image = report.page.locator(f"#{figure} :is([role=img], [role=list])")

            assert image.count() == 1, figure
            assert len(image.get_attribute("aria-label")) > 40, figure
            assert len(report.table(figure)) > 0, figure
