"""The gallery in `reports/`: each report has what its run plants, and text and JSON have one number for one thing."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.places import PROBE_PARTS, PROBES, ROOT
from tracekit.render.answer import LINES
from tracekit.render.page.contract import DATA_ID

REPORTS = ROOT / "reports"
RUNS = sorted(path.parent.name for path in REPORTS.glob("*/summary.json"))
SCRIPTS = ("entry", "gallery", "rebuild")


def scripts() -> Iterator[ModuleType]:
    """The modules of `SCRIPTS`, as `make reports` imports them."""
    sys.path.insert(0, str(REPORTS))
    try:
        yield from map(importlib.import_module, SCRIPTS)
    finally:
        sys.path.remove(str(REPORTS))


ENTRY, GALLERY, REBUILD = scripts()


def summary(run: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((REPORTS / run / "summary.json").read_text())
    return result


def planting(found: Any, *, value: float = 20.0, within: float = 0.1) -> Any:
    planted = ENTRY.Planted(what="a delay", value=value, unit="ms", found=found, within=within)
    return ENTRY.Entry(folder="ddp", trains="DDP", ranks=2, options="--delay-ms {value:g}", planted=planted)


def finding(text: str, saving_ns: int | None, error_ns: int | None, **evidence: Any) -> dict[str, Any]:
    fields = {"rank": 1, "cause": "compute", "saving_ns": saving_ns, "saving_error_ns": error_ns}
    return {"text": text, "evidence": evidence, **fields}


def test_every_probe_is_in_the_gallery_and_every_run_of_it_has_a_report() -> None:
    probes = {script.stem for script in PROBES.glob("*.py")} - PROBE_PARTS

    assert {entry.probe or entry.folder for entry in GALLERY.GALLERY} == probes
    assert sorted(entry.folder for entry in GALLERY.GALLERY) == RUNS


@pytest.mark.parametrize("entry", GALLERY.GALLERY, ids=lambda entry: entry.folder)
def test_what_is_planted_is_what_the_report_has(entry: Any) -> None:
    assert entry.planted.check(summary(entry.folder)) is None


@pytest.mark.parametrize("run", RUNS)
def test_the_page_of_a_report_has_its_numbers(run: str) -> None:
    page = (REPORTS / run / "report.html").read_text()
    data = json.loads(page.partition(f'id="{DATA_ID}">')[2].partition("</script>")[0])

    expected = summary(run)
    assert data["result"]["findings"] == expected["findings"]
    assert data["result"]["run"] == expected["run"]
    assert data["result"]["ranks"] == expected["ranks"]


def test_the_table_has_the_numbers_of_these_reports() -> None:
    assert (REPORTS / "README.md").read_text() == REBUILD.readme()


def test_the_command_plants_what_the_row_says() -> None:
    entry = planting(None, value=12.5)

    assert " ".join(entry.command) == "torchrun --standalone --nproc-per-node 2 probes/ddp.py --delay-ms 12.5"


def test_a_row_has_the_number_that_was_found_beside_the_one_that_was_planted() -> None:
    saving = finding("rank 1 computes longer", 21_500_000, 400_000)
    result = {"findings": [finding("steps vary", None, None) | {"cause": "variation"}, saving]}

    row = planting(ENTRY.saving_ms(rank=1, cause="compute")).row(result)

    assert "| a delay | 20 ms | 21.5 ± 0.4 ms | what finding 2 saves, “rank 1 computes longer” (" in row


@pytest.mark.parametrize(
    ("value", "error", "agrees"), [(22.0, 0.0, True), (22.1, 0.0, False), (23.0, 0.5, True), (39.4, 0.5, False)]
)
def test_found_agrees_with_planted_within_its_share_and_the_error(value: float, error: float, agrees: bool) -> None:
    planted = planting(None).planted

    assert planted.agrees_with(ENTRY.Found(value=value, error=error, words="")) == agrees


def test_a_report_without_what_was_planted_is_told_in_a_line() -> None:
    planted = planting(ENTRY.saving_ms(rank=1)).planted

    assert planted.check({"findings": [finding("rank 1 computes longer", 21_500_000, 400_000)]}) is None
    wrong = planted.check({"findings": [finding("rank 1 computes longer", 39_400_000, 400_000)]})
    assert wrong == "a delay, 20 ms: the report has 39.4 ± 0.4"
    assert planted.check({"findings": []}) == "a delay, 20 ms: no finding has {'rank': 1}"


def test_numbers_are_read_from_evidence_and_tables() -> None:
    result = {
        "findings": [finding("the stage is slow", None, None, factor=0.5, parts_ns={"compute": 7})],
        "ranks": [{"rank": 0, "comm_ns": 1}, {"rank": 0, "comm_ns": 2}, {"rank": 1, "comm_ns": 9}],
    }

    assert ENTRY.evidence("factor", 100, rank=1)(result).value == 50
    assert ENTRY.evidence("parts_ns.compute", rank=1)(result).value == 7
    assert ENTRY.column("ranks", "comm_ns", "communication", rank=0)(result).value == 1.5


def test_a_report_that_does_not_say_it_is_an_error() -> None:
    result = {"findings": [finding("rank 1 computes longer", None, None)], "ranks": []}

    for read in (
        ENTRY.saving_ms(rank=2),
        ENTRY.saving_ms(rank=1),
        ENTRY.evidence("factor", rank=2),
        ENTRY.column("ranks", "comm_ns", "communication"),
    ):
        with pytest.raises(LookupError):
            read(result)


@pytest.mark.parametrize("run", RUNS)
def test_the_savings_of_the_text_are_those_of_the_replays(run: str) -> None:
    result, text = summary(run), (REPORTS / run / "terminal.txt").read_text()
    assert len(text.splitlines()) <= LINES
    printed = re.findall(r"saves ([\d.]+)(?: ± [\d.]+)? ms", " ".join(text.split()))
    stated = [said for said in result["findings"] if said["saving_ns"]]
    assert printed == [f"{said['saving_ns'] / 1e6:.1f}" for said in stated][: len(printed)]
    assert printed or not stated
    for said in stated:
        assert said["saving_ns"] <= result["whatif"]["measured_step_ns"]
        replayed = {change["what"]: change["saves_ns_per_step"] for change in result["whatif"]["fix"]}
        if "change" in said["evidence"]:
            assert said["saving_ns"] == replayed[said["evidence"]["change"]]


@pytest.mark.parametrize("run", RUNS)
def test_the_causes_sum_to_the_step(run: str) -> None:
    diagnosis = summary(run)["diagnosis"]
    if diagnosis is None:  # of asynchronous trainers, whose job has no steps
        assert summary(run)["run"]["strategies"] == ["rpc"]
        return
    assert sum(cause["time_ns"] for cause in diagnosis["causes"]) == diagnosis["step_ns"]
