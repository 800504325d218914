"""`tracekit report`: which page it writes, what it overwrites, and what it prints."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.places import DATA
from tracekit.api import load
from tracekit.cli import cli

DDP = DATA / "ddp_slow_rank"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tracekit(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)], prog_name="tracekit")


def test_the_page_has_the_name_of_the_run_and_is_written_anew(folder: Path) -> None:
    page = folder / f"{load(DDP).run_id}.html"
    for _ in range(2):
        result = tracekit("report", DDP)
        assert (result.exit_code, result.stderr) == (0, "")
        assert [*folder.iterdir()] == [page]
    assert f"Page: {page.as_uri()}" in result.stdout.splitlines()
    assert result.stdout.splitlines()[-1].startswith(f"Next: tracekit open {DDP}")


def test_the_findings_are_those_of_the_first_screen() -> None:
    answer, verdict = (tracekit(command, DDP).stdout.split("\n\n") for command in ("analyze", "report"))
    assert verdict[:2] == answer[:2]


def test_an_anonymised_page_has_no_name_of_the_run_or_folder(folder: Path) -> None:
    result = tracekit("report", DDP, "--anonymize")
    (page,) = folder.iterdir()
    assert f"Page: {page.name}" in result.stdout.splitlines()
    assert not any(name in result.output for name in (str(folder), DDP.name))


@pytest.mark.parametrize("content", ["hello", "<html>", "{}", ""])
def test_no_other_file_is_overwritten(folder: Path, content: str) -> None:
    (folder / "notes.html").write_text(content)
    result = tracekit("report", DDP, "-o", "notes.html")
    assert (result.exit_code, result.stdout) == (3, "")
    assert (folder / "notes.html").read_text() == content


def test_the_page_of_a_comparison_is_not_overwritten(folder: Path) -> None:
    assert tracekit("compare", DDP, DDP, "-o", "page.html").exit_code == 0
    assert tracekit("report", DDP, "-o", "page.html").exit_code == 3


def test_browse_opens_the_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open_new_tab", lambda url: opened.append(url) is None)
    monkeypatch.setenv("BROWSER", "test")
    assert tracekit("report", DDP, "-o", "page.html", "--browse").exit_code == 0
    assert opened == [(folder / "page.html").as_uri()]
