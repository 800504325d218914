"""How `tracekit doctor` shows what it found, and its exit code."""

from __future__ import annotations

import importlib

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from tracekit import checks as installation
from tracekit.checks import Check, examine
from tracekit.cli import cli
from tracekit.cli.doctor import advise, draw

COMMAND = importlib.import_module("tracekit.cli.doctor")
TORCH = Check(name="torch", state="ok", found="torch 2.13.0")
NO_VIEWER = Check(
    name="viewer",
    state="absent",
    found="not installed; it adds SQL queries, with node; Perfetto's UI without a network",
    remedy="pip install 'torch-tracekit[viewer]'",
)
NO_RICH = Check(name="rich", state="problem", found="not installed", remedy="pip install 'rich>=13.7'")


def doctor(monkeypatch: pytest.MonkeyPatch, *checks: Check) -> Result:
    """The command's result, if these checks are what it finds."""
    monkeypatch.setattr(COMMAND, "examine", lambda: [*checks])
    return CliRunner().invoke(cli, ["doctor"], prog_name="tracekit")


def test_advice_names_problems_first_and_ends_with_the_next_command() -> None:
    checks = [
        Check(name="isal", state="absent", found="not installed", remedy="pip install isal"),
        Check(name="rich", state="problem", found="not installed", remedy="pip install rich"),
        Check(name="torch: gpu", state="absent", found="no GPU that torch can use"),
    ]
    assert [line for line in advise(checks) if line] == [
        "To mend:",
        "  rich  pip install rich",
        "To add:",
        "  isal  pip install isal",
        "Next: tracekit analyze --help",
    ]
    with_torch = [*checks, Check(name="torch", state="ok", found="torch 2.13.0")]
    assert advise(with_torch)[-1] == "Next: tracekit demo"


def test_the_table_takes_nothing_for_markup() -> None:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(draw([Check(name="gpu", state="ok", found="8 x [red]H100[/red]")]))
    assert "8 x [red]H100[/red]" in captured.get()


def test_the_command_prints_its_result_to_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    result = doctor(monkeypatch, TORCH, NO_VIEWER)
    assert result.exit_code == 0, result.stderr
    assert "  viewer  pip install 'torch-tracekit[viewer]'" in result.stdout.splitlines()
    assert result.stderr == ""
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_it_fails_where_something_needed_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a problem THEN the exit code is 1, after everything has been shown."""
    result = doctor(monkeypatch, NO_RICH, TORCH)
    assert result.exit_code == 1
    assert "pip install 'rich>=13.7'" in result.stdout
    assert result.stdout.splitlines()[-1] == "Next: tracekit demo"
    assert result.stderr == ""


def test_it_examines_the_installation_that_it_runs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "try_torch", list)
    result = CliRunner().invoke(cli, ["doctor"], prog_name="tracekit")
    checks = examine()
    assert result.exit_code == any(check.state == "problem" for check in checks)
    assert [check.name for check in checks if f" {check.name} " not in result.stdout] == []
    assert result.stderr == ""
