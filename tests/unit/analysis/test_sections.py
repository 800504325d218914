"""Summaries made for some sections alone: what is reported of these is the same, byte for byte."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from tests.places import DATA
from tests.simulated_fsdp import Unit, train
from tracekit.analysis.load import load
from tracekit.analysis.per_rank.summarize import _READ_BY, SummaryOptions
from tracekit.analysis.report import SECTIONS, analyze
from tracekit.errors import UsageError
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary
from tracekit.render.json_result import JsonResult
from tracekit.render.terminal import TerminalReport

RECORDED = DATA / "ddp_slow_rank"


def loaded(path: Path, *sections: str) -> Run:
    return load(path, options=SummaryOptions(sections=frozenset(sections) or None))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A recording of DDP on CPUs, and GPUs that train under FSDP."""
    blocks = [Unit(name=f"blocks.{i}", size_bytes=8 << 20, gather_us=300, forward_us=500) for i in range(3)]
    simulated = train(blocks, steps=2).write(tmp_path_factory.mktemp("simulated"))
    return {"recorded": loaded(RECORDED), "simulated": loaded(simulated)}


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("which", ["recorded", "simulated"])
def test_a_section_is_the_same_whether_others_are_asked_for_or_not(
    runs: dict[str, Run], which: str, section: str
) -> None:
    whole = runs[which]
    alone = loaded(Path(whole.path), section)

    for renderer in (JsonResult(), TerminalReport()):
        assert renderer.render(analyze(alone, only=section)) == renderer.render(analyze(whole, only=section))


def test_what_no_wanted_section_reads_is_not_summarised(runs: dict[str, Run]) -> None:
    (alone, *_), (whole, *_) = loaded(RECORDED, "breakdown", "overlap").ranks, runs["recorded"].ranks

    assert whole.traffic
    assert not alone.traffic
    assert alone.phases == whole.phases  # idle time less the time in which data is loaded


def test_a_run_cannot_be_asked_for_sections_that_it_was_not_loaded_for() -> None:
    with pytest.raises(UsageError, match="without what buckets, roofline needs"):
        analyze(loaded(RECORDED, "breakdown"), only=["breakdown", "buckets", "roofline"])


def test_every_table_that_some_sections_read_is_one_of_a_summary() -> None:
    assert set(_READ_BY) <= {field.name for field in fields(RankSummary)}
    assert frozenset.union(*_READ_BY.values()) <= set(SECTIONS)


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("which", ["recorded", "simulated"])
def test_a_section_reads_nothing_that_is_not_summarised_for_it(
    runs: dict[str, Run], which: str, section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: set[str] = set()

    def noted(summary: RankSummary, name: str) -> object:
        read.add(name)
        return object.__getattribute__(summary, name)

    monkeypatch.setattr(RankSummary, "__getattribute__", noted)
    report = analyze(runs[which], only=section)
    JsonResult().render(report)
    TerminalReport().render(report)

    assert "steps" in read
    assert {field for field, sections in _READ_BY.items() if field in read and section not in sections} == set()
