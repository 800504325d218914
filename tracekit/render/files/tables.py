"""The tables of a report as a folder of CSV or Parquet files, one a table, and values as cells of these files.

Text that a spreadsheet would take for a formula is made inert. Every cell can be turned back into its value. Workbooks
have the same cells.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError
from tracekit.model.table import Column, FilledTable
from tracekit.model.texts import unicode_text
from tracekit.render.output import new_folder
from tracekit.report.report import Report
from tracekit.schema import COLUMNS, TABLES, column_table

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


_NO_PYARROW = "install it with: pip install 'torch-tracekit[parquet]'"

# A spreadsheet takes what begins so for a formula; those of East Asian languages also take the wide forms.
_FORMULA_SIGNS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_MARK = "'"  # before text, as spreadsheets write it themselves


def tables_to_write(report: Report) -> list[FilledTable]:
    """Return what is written: the table of all columns, then each table of the report, also without rows."""
    tables = report.filled_tables
    return [column_table(tables), *tables.values()]


def write_csv_folder(report: Report, folder: Path, *, force: bool) -> None:
    """Write a folder of CSV files, UTF-8, comma separated, with a header. Raises what `new_folder` raises."""
    with new_folder(folder, _names(".csv"), force=force) as unfinished:
        for table in tables_to_write(report):
            (unfinished / f"{table.name}.csv").write_bytes(table_csv(table).encode("utf-8", "surrogatepass"))


def table_csv(table: FilledTable) -> str:
    """Return a table as CSV. Null is an empty cell; text is in quotes, and none of it is a formula."""
    stream = io.StringIO()
    # Text in quotes stays in its cell where a spreadsheet separates cells by semicolons.
    writer = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow([column.name for column in table.columns])
    cells = [
        [csv_cell(value, column.type) for value in values]
        for column, values in zip(table.columns, table.plain_values, strict=True)
    ]
    writer.writerows(zip(*cells, strict=True))
    return stream.getvalue()


def write_parquet_folder(report: Report, folder: Path, *, force: bool) -> None:
    """Write a folder of Parquet files whose fields have unit and meaning as metadata.

    Raises UsageError without pyarrow, and what `new_folder` raises.
    """
    _import_pyarrow("writing Parquet files")
    with new_folder(folder, _names(".parquet"), force=force) as unfinished:
        for table in tables_to_write(report):
            _write_parquet(table, unfinished / f"{table.name}.parquet")


def parquet_reader(path: Path) -> pd.DataFrame:
    """Return a Parquet file as a DataFrame. Raises UsageError without pyarrow."""
    _import_pyarrow("reading Parquet files")
    import pandas as pd

    return pd.read_parquet(path, engine="pyarrow")


def _write_parquet(table: FilledTable, path: Path) -> None:
    import pyarrow as pa

    frame = table.frame.copy()
    for column in table.columns:
        if is_json(column.type) and not column.type.startswith(("list[int]", "list[str]")):
            frame[column.name] = frame[column.name].map(as_json, na_action=None)
    fields = [
        pa.field(
            column.name,
            _arrow_type(column),
            nullable=column.type.endswith("?"),
            metadata={"unit": column.unit, "meaning": column.meaning, "type": column.type},
        )
        for column in table.columns
    ]
    try:
        frame.to_parquet(path, engine="pyarrow", index=False, schema=pa.schema(fields))
    except UnicodeEncodeError:  # of a path that is no Unicode
        frame.map(_unicode).to_parquet(path, engine="pyarrow", index=False, schema=pa.schema(fields))


def _unicode(value: object) -> object:
    """Return text with a question mark for what is no Unicode, and any other value as it is."""
    return unicode_text(value) if isinstance(value, str) else value


def _arrow_type(column: Column) -> pa.DataType:
    import pyarrow as pa

    types = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "list[int]": pa.list_(pa.int64())}
    types["list[str]"] = pa.list_(pa.string())
    return types.get(column.type.removesuffix("?"), pa.string())


def _names(suffix: str) -> Iterable[str]:
    return [f"{name}{suffix}" for name in (COLUMNS.name, *TABLES)]


def _import_pyarrow(what: str) -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise UsageError(f"{what} needs pyarrow, which is not installed", hint=_NO_PYARROW) from None


def inert_text(text: str) -> str:
    """Return text that no spreadsheet takes for a formula: an apostrophe precedes one that would be."""
    return f"{_MARK}{text}" if text.lstrip().startswith(_FORMULA_SIGNS) or text[:1] in ("\t", "\r") else text


def is_json(column_type: str) -> bool:
    """Return whether the cells of a column of this type are JSON: lists, objects, and values of several types."""
    return column_type.startswith(("list", "dict", "value"))


def as_json(value: object) -> str | None:
    """Return a list, an object, or one value as JSON; None for null."""
    return None if value is None else json.dumps(value, ensure_ascii=False, allow_nan=False)


def value_of_json(cell: str | None) -> Any:
    """Return the value of a cell that `as_json` made."""
    return None if cell is None else json.loads(cell)


def csv_cell(value: object, column_type: str) -> int | float | str | None:
    """Return a value as a cell of a CSV file; None for null, which is an empty cell.

    Text has an apostrophe before it if it begins with one, could be a formula, or is empty where there may be null.
    """
    if value is None:
        return None
    if is_json(column_type):
        return as_json(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if not value:
            return _MARK if column_type.endswith("?") else value
        return f"{_MARK}{value}" if value.startswith(_MARK) else inert_text(value)
    assert isinstance(value, int | float)
    return value


def value_of_csv(cell: str, column_type: str) -> Any:
    """Return the value of a cell that `csv_cell` made."""
    if not cell:
        return "" if column_type == "str" else None
    if is_json(column_type):
        return value_of_json(cell)
    kind = column_type.removesuffix("?")
    if kind == "str":
        return cell.removeprefix(_MARK)
    return cell == "true" if kind == "bool" else {"int": int, "float": float}[kind](cell)
