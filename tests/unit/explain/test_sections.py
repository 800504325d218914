"""Summaries for some sections only: the reports of these are the same, byte for byte."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_jobs import JobSpec, simulate
from tests.places import DATA
from tracekit.errors import UsageError
from tracekit.explain.sections import SECTIONS, parts_for
from tracekit.explain.step_time.tables import NAMED_WAITS
from tracekit.loading.load import load
from tracekit.loading.options import SummaryOptions
from tracekit.model.run import Run
from tracekit.model.summary import Part, RankSummary
from tracekit.model.table import FilledTable
from tracekit.render.json_result import result_json
from tracekit.render.terminal import terminal_text
from tracekit.report.report import analyze

RECORDED = DATA / "ddp_slow_rank"


def loaded(path: Path, *sections: str) -> Run:
    return load(path, options=SummaryOptions(sections=frozenset(sections) or None))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A recording of DDP on CPUs, and simulated GPUs that train with FSDP."""
    job = simulate(JobSpec(family="fsdp", dp=2, layers=3, steps=2))
    simulated = job.write(tmp_path_factory.mktemp("simulated"))
    return {"recorded": loaded(RECORDED), "simulated": loaded(simulated)}


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("which", ["recorded", "simulated"])
def test_a_section_alone_gives_the_same_as_in_the_whole_report(runs: dict[str, Run], which: str, section: str) -> None:
    whole = runs[which]
    alone = loaded(Path(whole.path), section)

    for render in (result_json, terminal_text):
        assert render(analyze(alone, only=section)) == render(analyze(whole, only=section))


def test_sections_that_the_run_was_not_loaded_for_are_refused() -> None:
    with pytest.raises(UsageError, match="without what buckets, roofline needs"):
        analyze(loaded(RECORDED, "breakdown"), only=["breakdown", "buckets", "roofline"])


def test_every_part_that_a_section_reads_is_made_by_one_section() -> None:
    makers = Counter(part for section in SECTIONS.values() for part in section.keeps)
    read = {part for section in SECTIONS.values() for part in section.reads}

    assert read - {NAMED_WAITS} <= makers.keys(), "several sections name waits, in one part"
    assert set(makers.values()) == {1}
    assert len({part.name for part in makers}) == len(makers)


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("which", ["recorded", "simulated"])
def test_a_section_reads_only_the_parts_that_it_declares(
    runs: dict[str, Run], which: str, section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that the section does not declare may be missing, except for those that every run has."""
    read: set[Part[Any]] = set()
    get_part = RankSummary.__getitem__

    def noted(summary: RankSummary, part: Part[Any]) -> Any:
        read.add(part)
        return get_part(summary, part)

    monkeypatch.setattr(RankSummary, "__getitem__", noted)
    report = analyze(runs[which], only=section)
    result_json(report)
    terminal_text(report)

    assert read <= parts_for(frozenset({section})).keys()


def test_each_table_of_a_result_is_one_of_its_section(runs: dict[str, Run]) -> None:
    for run in runs.values():
        for section in SECTIONS.values():
            result = analyze(run, only=section.name).result(section)
            names = {field.name for field in fields(result)} if result is not None else set()
            tables = {vars(result)[name].columns for name in names if isinstance(vars(result)[name], FilledTable)}
            assert tables <= {table.columns for table in section.tables}


def test_a_report_has_the_sections_that_were_asked_for(runs: dict[str, Run]) -> None:
    report = analyze(runs["recorded"], only=["breakdown", "pipeline"])

    assert report.breakdown is not None
    assert report.pipeline is None
    assert report.unavailable == {"pipeline": "no rank recorded actions of a pipeline"}
    assert report.overlap is None
    with pytest.raises(AttributeError, match="no_such_section"):
        report.no_such_section  # noqa: B018
