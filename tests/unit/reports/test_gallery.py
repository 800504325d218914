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


@pytest.mark.parametrize("run", RUNS)
def test_the_savings_of_the_text_are_those_of_the_replays(run: str) -> None:
    result, text = summary(run), (REPORTS / run / "terminal.txt").read_text()
    assert len(text.splitlines()) <= LINES
    printed = re.findall(r"[Ss]aves ([\d.]+)(?: ± [\d.]+)? ms", " ".join(text.split()))
    stated = [said for said in result["findings"] if said["saving_ns"]]
    assert printed == [f"{said['saving_ns'] / 1e6:.1f}" for said in stated][: len(printed)]
    assert bool(printed) == bool(stated)
    if not stated:
        return
    replayed = {change["what"]: change["saves_ns_per_step"] for change in result["whatif"]["fix"]}
    if "change" in stated[0]["evidence"]:  # those of the others are replays after it
        assert stated[0]["saving_ns"] == replayed[stated[0]["evidence"]["change"]]
    assert sum(said["saving_ns"] for said in stated) <= result["whatif"]["measured_step_ns"]


@pytest.mark.parametrize("run", RUNS)
def test_the_causes_sum_to_the_step(run: str) -> None:
    diagnosis = summary(run)["diagnosis"]
    if diagnosis is None:  # of asynchronous trainers, whose job has no steps
        assert summary(run)["run"]["strategies"] == ["rpc"] or summary(run)["servers"]
        return
    assert sum(cause["time_ns"] for cause in diagnosis["causes"]) == diagnosis["step_ns"]
