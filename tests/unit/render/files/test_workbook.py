"""Excel workbooks: inert text, exact numbers, and what Excel has no room for."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.components import require_module
from tests.unit.render.files.reports import HOSTILE, hostile_report, recorded_report
from tracekit.errors import OutputError, UsageError
from tracekit.render.files import workbook
from tracekit.render.files.workbook import cell_text

openpyxl = require_module("openpyxl")


def unescape(cell: str) -> str:
    """The text of a cell, as Excel shows it."""
    return re.sub("_x([0-9A-Fa-f]{4})_", lambda match: chr(int(match[1], 16)), cell)


def finding_of(path: Path) -> dict[str, Any]:
    """The cells of the first finding in a workbook, by column."""
    header, first, *_ = openpyxl.load_workbook(path)["findings"].iter_rows(values_only=True)
    return dict(zip(header, first, strict=True))


def test_a_sheet_has_a_header_and_the_rows_and_empty_tables_have_none(tmp_path: Path) -> None:
    report = recorded_report()
    report.write(tmp_path / "report.xlsx")
    book = openpyxl.load_workbook(tmp_path / "report.xlsx")
    assert book.sheetnames == ["columns", *(name for name, frame in report.tables.items() if len(frame))]
    header, *rows = book["ranks"].iter_rows(values_only=True)
    assert list(header) == list(report.breakdown.ranks.columns)
    assert [row[header.index("step_ns")] for row in rows] == report.breakdown.ranks["step_ns"].tolist()
    assert book["ranks"].freeze_panes == "A2"


def test_no_cell_is_a_formula_or_a_link(tmp_path: Path) -> None:
    hostile_report(tmp_path / "run").write(tmp_path / "report.xlsx")
    book = openpyxl.load_workbook(tmp_path / "report.xlsx")
    cells = [cell for sheet in book for row in sheet.iter_rows() for cell in row]
    hostile = [cell for cell in cells if isinstance(cell.value, str) and cell.value.startswith("=HYPERLINK")]
    assert hostile
    assert all(cell.data_type == "s" and cell.quotePrefix for cell in hostile)
    assert {cell.data_type for cell in cells} <= {"s", "inlineStr", "n", "b"}
    assert all(cell.hyperlink is None for cell in cells)
    with ZipFile(tmp_path / "report.xlsx") as file:
        assert not any(b"<f>" in file.read(name) for name in file.namelist())


def test_integers_that_excel_would_round_are_text(tmp_path: Path) -> None:
    report = recorded_report()
    report.write(tmp_path / "report.xlsx")
    header, first, *_ = openpyxl.load_workbook(tmp_path / "report.xlsx")["steps"].iter_rows(values_only=True)
    assert first[header.index("start_ns")] == str(report.breakdown.steps["start_ns"][0])
    assert first[header.index("step_ns")] == report.breakdown.steps["step_ns"][0]


@given(text=st.text(st.characters(codec=None) | st.sampled_from("_x000DAF\r\x00")))
def test_any_text_comes_back_from_what_xml_can_hold(text: str) -> None:
    cell = cell_text(text)
    assert unescape(cell) == text
    assert not set(cell) & {*map(chr, range(32)), "\ufffe"} - {"\t", "\n"}


def test_a_cell_that_is_too_long_is_cut_and_said_to_be(tmp_path: Path) -> None:
    report = recorded_report()
    long = replace(report.findings[0], text="x" * 40_000)
    with pytest.warns(UserWarning, match="findings: 1 cell is cut to the 32,767 characters"):
        replace(report, findings=(long,)).write(tmp_path / "report.xlsx")
    assert finding_of(tmp_path / "report.xlsx")["text"] == "x" * 32_767


def test_of_a_list_or_an_object_that_is_too_long_whole_elements_are_kept(tmp_path: Path) -> None:
    """GIVEN a bucket of 5,000 parameters and much evidence WHEN they are written THEN what has room is read back."""
    report = recorded_report()
    names = [f"layers.{number}.weight" for number in range(5_000)]
    much = replace(report.findings[0], ranks=tuple(range(20_000)), evidence=dict.fromkeys(names, "=1\x1b"))
    with pytest.warns(UserWarning, match="findings: 2 cells are cut"):
        replace(report, findings=(much,)).write(tmp_path / "report.xlsx")
    finding = finding_of(tmp_path / "report.xlsx")
    ranks, evidence = (json.loads(unescape(finding[name])) for name in ("ranks", "evidence"))
    for kept, whole in ((ranks, [*range(20_000)]), (list(evidence), names)):
        assert kept == whole[: len(kept)]
        assert 800 < len(kept) < len(whole)
    assert max(len(str(cell)) for cell in finding.values()) <= 32_767


def test_more_rows_than_excel_takes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbook, "_MOST_ROWS", 6)  # the run has 6 steps, and a header takes a row
    with pytest.raises(OutputError, match="no room for the rows of"):
        recorded_report().write(tmp_path / "report.xlsx")
    assert not (tmp_path / "report.xlsx").exists()


def test_a_full_disk_is_named_with_the_workbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_all = openpyxl.Workbook.save

    def save(book: Any, stream: Any) -> None:
        save_all(book, stream)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(openpyxl.Workbook, "save", save)
    with pytest.raises(OutputError) as caught:
        recorded_report().write(tmp_path / "report.xlsx")
    assert caught.value.message == f"{tmp_path / 'report.xlsx'}: No space left on device"
    assert list(tmp_path.iterdir()) == []


def test_without_openpyxl_a_workbook_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(UsageError, match="needs openpyxl") as error:
        recorded_report().write(tmp_path / "report.xlsx")
    assert "torch-tracekit[xlsx]" in error.value.hint


def test_the_text_of_a_hostile_group_is_there(tmp_path: Path) -> None:
    hostile_report(tmp_path / "run").write(tmp_path / "report.xlsx")
    book = openpyxl.load_workbook(tmp_path / "report.xlsx")
    header, row, *_ = book["groups"].iter_rows(values_only=True)
    assert unescape(row[header.index("description")]) == HOSTILE
