"""The tables of a report: every section's, and those of the run itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders import write_run
from tests.places import DATA
from tests.unit.explain.gpu_runs import gpu_rank
from tracekit.explain.sections import TABLES
from tracekit.loading.load import load
from tracekit.report.report import Report, analyze


@pytest.fixture(scope="module")
def report() -> Report:
    return analyze(DATA / "ddp_slow_rank")


def test_a_report_has_every_table_of_its_sections(report: Report) -> None:
    """GIVEN a DDP run THEN all tables are there in their order, but those of the pipeline."""
    names = [table.name for table in TABLES if not table.name.startswith("pipeline")]
    assert list(report.tables) == names
    assert "pipeline" in report.unavailable
    assert list(report.tables["ranks"]["rank"]) == [0, 1]
    assert report.tables["ranks"].equals(report.breakdown.ranks)


def test_what_if_has_the_changes_the_slowdowns_and_the_replay(report: Report) -> None:
    changes, replay = report.tables["whatif"], report.tables["whatif_replay"]
    assert list(changes["saves_ns_per_step"]) == [change.saves_ns_per_step for change in report.whatif.changes]
    assert changes["what"][0] == "rank 1 at its peers' median"
    assert replay["measured_step_ns"].tolist() == [report.whatif.measured_ns]
    slowdowns = report.tables["whatif_slowdowns"]
    of_rank = slowdowns[slowdowns["of"] == "rank"]
    assert dict(zip(of_rank["name"], of_rank["slowdown"], strict=True)) == {
        str(rank): slowdown for rank, slowdown in report.whatif.by_rank.items()
    }
    assert report.whatif.fix.equals(changes)


def test_findings_and_notes_are_those_of_the_report(tmp_path: Path) -> None:
    """GIVEN a run of 4 ranks without rank 3 THEN a note says so, and findings have their evidence as JSON has it."""
    folder = write_run(tmp_path, [gpu_rank(rank, compute_us=80 if rank == 2 else 50) for rank in range(3)])
    report = analyze(load(folder))
    findings, notes, run = (report.tables[name] for name in ("findings", "notes", "run"))
    assert list(findings["text"]) == [finding.text for finding in report.findings]
    assert findings["evidence"][0] == json.loads(json.dumps(dict(report.findings[0].evidence)))
    assert "missing-rank" in list(notes["id"])
    assert (run["ranks"][0], run["world_size"][0], run["missing_ranks"][0]) == (3, 4, [3])
    assert (run["steps"][0], run["step_median_ns"][0]) == (3, 100_000)


def test_sections_that_were_not_asked_for_have_no_tables() -> None:
    report = analyze(DATA / "ddp_slow_rank", only="breakdown")
    names = ("ranks", "steps", "idle_causes", "idle_locations")
    of_section = [table.name for table in TABLES if table.name in names]
    assert list(report.tables) == ["run", "findings", "notes", "groups", "clock", "point_to_point", *of_section]
