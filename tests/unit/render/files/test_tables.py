"""Folders of CSV and Parquet files, as other programs read them."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.components import require_module
from tests.places import DATA
from tests.unit.render.files.reports import hostile_report, recorded_report
from tracekit.api import analyze
from tracekit.errors import UsageError
from tracekit.model.table import Column, Table
from tracekit.render.files.tables import table_csv

pq = require_module("pyarrow.parquet")


def test_there_is_a_file_for_each_table_and_one_that_describes_them(tmp_path: Path) -> None:
    report = analyze(DATA / "ddp_slow_rank", only="breakdown")
    report.write(tmp_path / "tables.csv")
    names = {file.stem for file in (tmp_path / "tables.csv").iterdir()}
    assert names == {"columns", *report.tables}
    described = pd.read_csv(tmp_path / "tables.csv" / "columns.csv")
    assert set(described["table"]) == set(report.tables)


def test_pandas_reads_the_csv_without_tracekit(tmp_path: Path) -> None:
    report = recorded_report()
    report.write(tmp_path / "tables.csv")
    steps = pd.read_csv(tmp_path / "tables.csv" / "steps.csv")
    for name in ("rank", "step", "start_ns", "step_ns", "compute_ns", "complete", "overlap_ratio"):
        assert steps[name].tolist() == report.breakdown.steps[name].tolist()
    assert steps["data_ns"].isna().all()


def test_no_cell_of_a_csv_file_is_a_formula_whatever_parts_its_cells(tmp_path: Path) -> None:
    hostile_report(tmp_path / "run").write(tmp_path / "tables.csv")
    seen = 0
    for file in (tmp_path / "tables.csv").iterdir():
        for delimiter in ",;\t":
            for row in csv.reader(file.read_text().splitlines(keepends=True), delimiter=delimiter):
                for cell in row:
                    seen += "HYPERLINK" in cell
                    assert not cell.lstrip().startswith(("=", "@")), (file.name, delimiter, cell)
    assert seen


def test_pandas_reads_the_parquet_with_types_and_descriptions(tmp_path: Path) -> None:
    report = recorded_report()
    report.write(tmp_path / "tables.parquet")
    steps = pd.read_parquet(tmp_path / "tables.parquet" / "steps.parquet")
    pd.testing.assert_frame_equal(steps, report.breakdown.steps)
    assert steps.attrs == report.breakdown.steps.attrs
    field = pq.read_schema(tmp_path / "tables.parquet" / "steps.parquet").field("step_ns")
    assert field.metadata[b"unit"] == b"ns"
    assert not field.nullable


def test_parquet_types_do_not_depend_on_the_rows(tmp_path: Path) -> None:
    """GIVEN lists without items and columns of nulls THEN their types are those of the schema."""
    report = analyze(DATA / "ddp_slow_rank", only=["buckets", "fsdp"])
    report.write(tmp_path / "tables.parquet")
    types = {
        name: str(pq.read_schema(tmp_path / "tables.parquet" / f"{table}.parquet").field(name).type)
        for table, name in (
            ("bucket_map", "parameters"),
            ("run", "missing_ranks"),
            ("fsdp", "module"),
            ("groups", "id"),
        )
    }
    assert types == {
        "parameters": "list<element: string>",
        "missing_ranks": "list<element: int64>",
        "module": "string",
        "id": "int64",
    }


def test_null_is_an_empty_cell() -> None:
    columns = (Column("name", "str?", "", ""), Column("ratio", "float?", "", ""), Column("count", "int", "", ""))
    rows = [{"name": None, "ratio": None, "count": 1}, {"name": "", "ratio": 0.5, "count": -2}]
    assert table_csv(Table("t", columns).fill(rows)).splitlines() == [
        '"name","ratio","count"',
        '"","",1',
        '"\'",0.5,-2',
    ]


def test_without_pyarrow_parquet_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = recorded_report()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="needs pyarrow") as error:
        report.write(tmp_path / "tables.parquet")
    assert "torch-tracekit[parquet]" in error.value.hint
    assert not (tmp_path / "tables.parquet").exists()
