"""The object in the page's data block: it has the shape of the contract, and the numbers of the JSON result."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import fmean
from typing import Any

import msgspec
import pytest

from tests.unit.render.page.jobs import job, made_up_lanes, report_of
from tracekit.api import Report
from tracekit.errors import InputError
from tracekit.model.notes import Note
from tracekit.model.run import Run
from tracekit.rank.idle_causes import IDLE_CAUSES
from tracekit.render.json_result import result_dict, result_json
from tracekit.render.page.build import page_data
from tracekit.render.page.contract import Page, PageData
from tracekit.render.page.size import amounts_for, script_json
from tracekit.report.step_lanes import StepLanes


def data_of(report: Report) -> PageData:
    return page_data(report, made_up_lanes, amounts_for(len(report.run.ranks)))


@pytest.fixture(scope="module")
def report() -> Report:
    return report_of(job())


@pytest.fixture(scope="module")
def data(report: Report) -> PageData:
    return data_of(report)


def test_it_has_the_shape_of_the_contract(data: PageData) -> None:
    """GIVEN a filled object WHEN it is read back from the page's text THEN every structure has the keys and types of
    the contract.
    """
    msgspec.convert(json.loads(script_json(data)), PageData, strict=True)

    assert data["page"].keys() == Page.__annotations__.keys()


def test_the_result_is_that_of_json(report: Report, data: PageData) -> None:
    assert json.loads(script_json(data["result"])) == json.loads(result_json(report))
    assert data["page"]["cuts"] == []


def test_of_many_collectives_those_with_the_most_time_are_shown(report: Report, data: PageData) -> None:
    amounts = replace(amounts_for(8), collectives=2)
    cut = page_data(report, made_up_lanes, amounts)

    assert cut["result"]["collectives"] == data["result"]["collectives"][:2]
    assert [skew["row"] for skew in cut["page"]["skew"]] == [0, 1]
    (note,) = cut["page"]["cuts"]
    assert (note["what"], note["kept"], note["total"]) == ("collectives", 2, len(data["result"]["collectives"]))


def test_means_are_over_all_ranks_though_tables_are_cut() -> None:
    """GIVEN so little room that tables keep few ranks THEN means a step are still those over all 64."""
    report = report_of(job(64))
    room_for_few = replace(amounts_for(64), size_bytes=250_000)

    data = page_data(report, None, room_for_few)

    cuts = {cut["what"]: cut["ranks"] for cut in data["page"]["cuts"]}
    assert 0 < len(cuts["idle_causes"] or ()) < 64
    # Rank r idles r + i ns in its 4 steps for the i-th cause.
    expected = {cause: (63 / 2 + i) / 4 for i, cause in enumerate(IDLE_CAUSES)}
    assert {row["cause"]: row["total_ns"] for row in data["page"]["means"]["idle_causes"]} == expected
    (forward,) = data["page"]["means"]["phases"]
    steps = [row["step_ns"] / row["steps"] for row in result_dict(report)["ranks"]]
    assert (forward["phase"], forward["ranks"], forward["total_ns"]) == ("forward", 64, pytest.approx(fmean(steps)))


def test_causes_sum_to_the_step(data: PageData) -> None:
    step = data["page"]["step"]

    assert (
        step["step_ns"] == sum(cause["time_ns"] for cause in step["causes"]) == data["result"]["diagnosis"]["step_ns"]
    )


def test_columns_are_described_for_every_table_of_the_result(data: PageData) -> None:
    described = data["page"]["columns"]

    assert [column["name"] for column in described["kernels"]][:3] == ["name", "kind", "count"]
    for name in ("ranks", "steps", "collectives", "memory"):
        for row in data["result"][name][:1]:
            assert {column["name"] for column in described[name]} == row.keys()


def test_files_that_cannot_be_read_again_leave_a_reason(report: Report) -> None:
    def gone(run: Run, times: Any, most: int) -> list[StepLanes]:
        raise InputError("rank3.json: no such file", hint="record again")

    page = page_data(report, gone, amounts_for(8))["page"]

    assert page["lanes"] == []
    assert page["lanes_reason"] == "the traces could not be read again: rank3.json: no such file (record again)"


def test_hostile_names_are_inert() -> None:
    """GIVEN names with markup, control characters, and a megabyte of text THEN the page's text has none of them."""
    hostile = "</script><script>alert(1)</script>\x1b[31m\u202eevil\u2028" + "x" * 1_000_000
    run = job()
    run = replace(
        run,
        notes=(Note(id="limit", severity="warning", text=hostile),),
        ranks=tuple(replace(summary, host=hostile) for summary in run.ranks),
    )

    text = script_json(data_of(report_of(run)))

    assert len(text) < 500_000
    assert "<" not in text
    assert text.isascii()
    assert text.isprintable()
    (note,) = json.loads(text)["result"]["notes"]
    assert note["text"].startswith("</script><script>alert(1)</script>\\x1b[31m\\u202eevil\\u2028xxx")
    assert note["text"].endswith("…")
