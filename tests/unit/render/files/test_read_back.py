"""What is written reads back equal: values, types, nulls, units and meanings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import tracekit
from tests.components import require_module
from tests.unit.render.files.reports import HOSTILE, hostile_report, recorded_report
from tracekit.api import Report
from tracekit.errors import InputError

FORMATS = ("tables.csv", "tables.parquet")


@pytest.fixture(autouse=True, scope="module")
def _packages() -> None:
    require_module("pyarrow")


def assert_equal(actual: dict[str, pd.DataFrame], expected: dict[str, pd.DataFrame]) -> None:
    assert list(actual) == list(expected)
    for name, frame in expected.items():
        pd.testing.assert_frame_equal(actual[name], frame, obj=name, check_exact=True)
        assert actual[name].attrs == frame.attrs


@pytest.mark.parametrize("name", FORMATS)
def test_a_recorded_run_reads_back_equal(tmp_path: Path, name: str) -> None:
    report = recorded_report()
    report.write(tmp_path / name)
    back = tracekit.read_tables(tmp_path / name)
    assert_equal(back, report.tables)
    # Wall clocks are nanoseconds since 1970: more digits than a floating-point number has.
    assert back["steps"]["start_ns"].min() > 1 << 60


@pytest.mark.parametrize("name", FORMATS)
def test_hostile_names_read_back_equal(tmp_path: Path, name: str) -> None:
    report = hostile_report(tmp_path / "run")
    report.write(tmp_path / name)
    back = tracekit.read_tables(tmp_path / name)
    assert_equal(back, report.tables)
    assert HOSTILE in list(back["groups"]["description"])
    assert back["run"]["device_names"][0] == [HOSTILE]


def test_damaged_tables_are_refused_in_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "tables.csv"
    recorded_report().write(folder)

    def remove_columns() -> None:
        (folder / "columns.csv").unlink()

    def cut_a_row() -> None:
        (folder / "ranks.csv").write_text('"rank","steps"\n1\n')

    def spoil_a_number() -> None:
        (folder / "memory.csv").write_text(
            '"rank","parameter_bytes","gradient_bytes","optimizer_bytes","peak_bytes"\nx,,,,\n'
        )

    damages: list[Callable[[], None]] = [spoil_a_number, cut_a_row, remove_columns]
    for damage in damages:
        damage()
        with pytest.raises(InputError, match="not tables of a report"):
            tracekit.read_tables(folder)


@pytest.mark.parametrize("name", ["missing", "empty", "text.xlsx"])
def test_what_is_no_table_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.xlsx").write_text("no workbook")
    with pytest.raises(InputError):
        tracekit.read_tables(tmp_path / name)


def test_a_table_of_another_version_has_the_columns_that_it_lists(tmp_path: Path) -> None:
    """GIVEN tables with a column that this version does not know THEN it is read as the table of columns says."""
    report: Report = recorded_report()
    report.write(tmp_path / "tables.csv")
    columns, groups = tmp_path / "tables.csv" / "columns.csv", tmp_path / "tables.csv" / "groups.csv"
    text = columns.read_text()
    columns.write_text(
        text.replace('"groups","id","int"', '"groups","color","str?","","Of the future."\n"groups","id","int"')
    )
    header, *rows = groups.read_text().splitlines()
    groups.write_text("\n".join([f'"color",{header}', *(f'"red",{row}' for row in rows)]) + "\n")
    assert list(tracekit.read_tables(tmp_path / "tables.csv")["groups"]["color"]) == ["red"]
