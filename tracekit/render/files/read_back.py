"""Read the tables that a report was written to from a folder: they are equal to those of the report."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from tracekit.errors import InputError
from tracekit.model.table import Column, Table, Type
from tracekit.render.files.tables import is_json, parquet_reader, value_of_csv, value_of_json
from tracekit.schema import COLUMNS

if TYPE_CHECKING:
    import pandas as pd


_HINT = "give what `tracekit analyze RUN -o` wrote: a folder of CSV or Parquet files"

_Cells = dict[str, list[Any]]
"""The cells of a file, by the name of the column."""
_Decode = Callable[[Any, str], Any]
"""Returns the value of a cell of a column with a type."""


def read_tables(path: str | os.PathLike[str]) -> dict[str, pd.DataFrame]:
    """Return the tables of a report that were written to `path`, by name, as `Report.tables` has them.

    `path` is a folder of CSV or Parquet files.

    Raises InputError when there are none, or they are damaged. Raises UsageError when a package is missing.
    """
    source = Path(path)
    try:
        if not source.exists():
            raise InputError(f"{source}: no such file or folder", hint=_HINT)
        cells, decode = _cells_of(source)
        return _tables(cells, decode)
    except (LookupError, TypeError, ValueError, OSError, csv.Error) as error:
        text = f"no {error} there" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{source}: not tables of a report: {text}", hint=_HINT) from None


def _tables(cells: Mapping[str, _Cells], decode: _Decode) -> dict[str, pd.DataFrame]:
    """Return the tables whose columns the table of columns lists. One that is not there has no rows."""
    descriptions = [
        [decode(cell, column.type) for cell in cells[COLUMNS.name][column.name]] for column in COLUMNS.columns
    ]
    columns: dict[str, list[Column]] = {}
    for table, name, kind, unit, meaning in zip(*descriptions, strict=True):
        if kind not in get_args(Type):
            raise ValueError(f"the type {kind!r} of {table}.{name} is not known")
        columns.setdefault(table, []).append(Column(name, kind, unit, meaning))
    tables = {}
    for name, of_table in columns.items():
        present = cells.get(name, {column.name: [] for column in of_table})
        of_columns = {c.name: [decode(cell, c.type) for cell in present[c.name]] for c in of_table}
        rows = [dict(zip(of_columns, row, strict=True)) for row in zip(*of_columns.values(), strict=True)]
        tables[name] = Table(name, tuple(of_table)).fill(rows).frame
    return tables


def _cells_of(source: Path) -> tuple[dict[str, _Cells], _Decode]:
    """Return the cells of all tables, and what decodes them."""
    if files := sorted(source.glob("*.parquet")):
        return {file.stem: _parquet_cells(file) for file in files}, _parquet_value
    with _long_cells():
        return {file.stem: _csv_cells(file) for file in sorted(source.glob("*.csv"))}, value_of_csv


def _csv_cells(file: Path) -> _Cells:
    with file.open(encoding="utf-8", errors="surrogatepass", newline="") as stream:
        header, *rows = csv.reader(stream)
    return {name: [row[at] for row in rows] for at, name in enumerate(header)}


@contextmanager
def _long_cells() -> Iterator[None]:
    """Let the module `csv` read cells of any length meanwhile."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _parquet_cells(file: Path) -> _Cells:
    frame = parquet_reader(file)
    return {str(name): frame[name].tolist() for name in frame.columns}


def _parquet_value(cell: Any, column_type: str) -> Any:
    import pandas as pd

    if hasattr(cell, "tolist"):  # a list, as numpy's array
        return cell.tolist()
    if cell is None or cell is pd.NA or cell != cell:  # NaN alone differs from itself
        return None
    return value_of_json(cell) if is_json(column_type) and isinstance(cell, str) else cell
