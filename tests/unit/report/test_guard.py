"""An error of tracekit's own in an analysis over ranks costs that analysis, and is named as what to report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

import tracekit
from tests.places import DATA
from tracekit import __version__
from tracekit.cli import cli
from tracekit.errors import InputError
from tracekit.explain.section import AnalysisInput, Guard
from tracekit.explain.sections import SECTIONS
from tracekit.loading import load as loading
from tracekit.model.run import Run
from tracekit.report import report as reporting

DDP = DATA / "ddp_slow_rank"


def fail(*_: object) -> Any:
    raise ZeroDivisionError("division by zero")


def let_fail(monkeypatch: pytest.MonkeyPatch, *names: str, analyze: Callable[..., Any] = fail) -> None:
    """Let the analyses of these sections fail."""
    for name in names:
        monkeypatch.setitem(SECTIONS, name, replace(SECTIONS[name], analyze=analyze))


def lost(run: Run) -> list[str]:
    return [note.text for note in run.notes if note.id == "internal-error"]


def test_a_section_that_fails_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tracekit.analyze(DDP)
    let_fail(monkeypatch, "phases")
    report = tracekit.analyze(DDP)
    document, expected = json.loads(report.to_json()), json.loads(whole.to_json())
    different = {key for key in expected if document.get(key) != expected[key]}
    assert "phases" in different <= {"phases", "findings", "notes", "unavailable"}
    assert document["unavailable"]["phases"] == "an error in tracekit, which the notes name"
    (note,) = lost(report.run)
    assert re.sub(r"line \d+", "line N", note) == (
        f"a bug in tracekit {__version__} (ZeroDivisionError: division by zero; explain/section.py, line N): report "
        "what TRACEKIT_DEBUG=1 shows; left out: section phases"
    )


def test_nothing_is_said_to_stand_out_where_a_section_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    let_fail(monkeypatch, *(set(SECTIONS) - {"breakdown"}))
    report = tracekit.analyze(DDP)
    assert report.findings == ()
    assert "stands out" not in report.summary()


def test_one_error_in_several_sections_is_one_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(given: AnalysisInput) -> Any:
        return given.once(fail)

    let_fail(monkeypatch, "phases", "overlap", analyze=ask)
    (note,) = lost(tracekit.analyze(DDP).run)
    assert note.endswith("; left out: section phases, section overlap")


@pytest.mark.parametrize("extra", [[], ["--json"], ["--full"], ["--strict"]])
def test_the_command_ends_as_it_would_for_other_defects(monkeypatch: pytest.MonkeyPatch, extra: list[str]) -> None:
    let_fail(monkeypatch, *SECTIONS)
    result = CliRunner().invoke(cli, ["analyze", str(DDP), *extra])
    assert result.exit_code == (3 if extra == ["--strict"] else 0), result.output
    assert "ZeroDivisionError" in result.stdout
    if extra == ["--strict"]:
        assert result.stderr.startswith("Error: --strict: a bug in tracekit")
        assert result.stderr.count("\n") == 1


OVER_RANKS = {
    loading: (
        *("without_incomparable_times", "first_steps_to_leave_out", "without_jumping_clocks"),
        *("step_notes", "with_inferred_groups", "groups_of_run", "match_collectives", "align"),
        *("with_inferred_peers", "match_messages", "with_inferred_pipelines", "with_manual_pipelines"),
    ),
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in OVER_RANKS.items() for name in names])
def test_a_run_loads_whatever_fails_over_its_ranks(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    monkeypatch.setattr(module, name, fail)
    report = tracekit.analyze(DDP)
    assert [summary.rank for summary in report.run.ranks] == [0, 1]
    assert len(lost(report.run)) >= 1
    assert report.breakdown is not None


@pytest.mark.parametrize("name", ["with_stated_savings", "overhead_findings", "rank_findings", "noisy_steps"])
def test_findings_that_cannot_be_ranked_are_shown(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(reporting, name, fail)
    report = tracekit.analyze(DDP)
    assert len(lost(report.run)) == 1
    assert name == "overhead_findings" or report.findings


def test_a_debugger_gets_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_DEBUG", "1")
    let_fail(monkeypatch, "phases")
    with pytest.raises(ZeroDivisionError):
        tracekit.analyze(DDP)


def test_an_error_of_the_user_passes() -> None:
    def refuse() -> None:
        raise InputError("rank0.json: not a trace", hint="record it again")

    with pytest.raises(InputError):
        Guard().run("section collectives", None, refuse)


def test_too_little_memory_is_no_bug() -> None:
    def exhaust() -> None:
        raise MemoryError

    guard = Guard()
    assert guard.run("section whatif", "otherwise", exhaust) == "otherwise"
    (note,) = guard.notes
    assert note.text == "there is not enough memory; left out: section whatif"
