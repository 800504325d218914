"""The tables of a report as an Excel workbook, a sheet a table.

Text is text to Excel, never a formula. What a cell cannot hold as it is, it holds as text: integers that Excel would
round, lists, objects. Characters that XML has none for are written as Excel writes them, `_x001B_`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from tracekit.errors import OutputError, UsageError
from tracekit.model.table import FilledTable
from tracekit.render.files.tables import as_json, is_json, tables_to_write
from tracekit.render.output import new_file
from tracekit.report.report import Report

LONGEST_CELL = 32_767
"""Characters that a cell of Excel holds."""
_MOST_ROWS = 1_048_576
_LARGEST_EXACT = 1 << 53  # larger integers are rounded, as numbers of Excel are floating-point
_WIDEST = 60
# Characters that XML cannot hold, or changes (a carriage return), and text that looks like an escape of one.
_ESCAPED = re.compile("[\x00-\x08\x0b-\x0d\x0e-\x1f\ufffe\uffff\ud800-\udfff]|_(?=x[0-9A-Fa-f]{4}_)")


def write_workbook(report: Report, path: Path, *, force: bool) -> tuple[str, ...]:
    """Write an .xlsx file and return what was cut, a sentence each. Tables without rows have no sheet.

    Raises UsageError without openpyxl, OutputError for more rows than Excel takes, and what `new_file` raises.
    """
    try:
        import openpyxl
    except ImportError:
        hint = "install it with: pip install 'torch-tracekit[xlsx]'"
        raise UsageError("writing Excel files needs openpyxl, which is not installed", hint=hint) from None
    tables = [table for table in tables_to_write(report) if table.values[0]]
    for table in tables:
        if len(table.values[0]) >= _MOST_ROWS:
            hint = "write a folder of tables instead, such as tables.parquet"
            raise OutputError(f"{path}: Excel has no room for the rows of {table.name}", hint=hint)
    with new_file(path, force=force) as stream:
        # openpyxl keeps each sheet in a temporary file meanwhile: where these have no room, `path` is named as well.
        workbook = openpyxl.Workbook(write_only=True)
        remarks = [remark for table in tables for remark in _add_sheet(workbook, table)]
        content = BytesIO()
        workbook.save(content)
        stream.write(content.getbuffer())
    return tuple(remarks)


def cell_text(text: str) -> str:
    """Return text as a cell of a workbook holds it."""
    return _ESCAPED.sub(lambda match: f"_x{ord(match[0]):04X}_", text)


def _add_sheet(workbook: Any, table: FilledTable) -> Iterator[str]:
    """Add a sheet of a table. Yield a remark where cells were cut."""
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import Font
    from openpyxl.utils import get_column_letter

    sheet = workbook.create_sheet(table.name)
    columns, cut = [], 0
    for column, values in zip(table.columns, table.plain_values, strict=True):
        whole = [_plain(value, column.type) for value in values]
        columns.append(
            [
                _shortened(value, column.type) if _is_too_long(cell) else cell
                for cell, value in zip(whole, values, strict=True)
            ]
        )
        cut += sum(map(_is_too_long, whole))
    for number, (column, values) in enumerate(zip(table.columns, columns, strict=True), 1):
        longest = max((len(str(value)) for value in values), default=0)
        sheet.column_dimensions[get_column_letter(number)].width = min(max(longest, len(column.name)) + 2, _WIDEST)
    sheet.freeze_panes = "A2"

    def cell(value: object, font: Any = None) -> Any:
        written_cell = WriteOnlyCell(sheet, repr(value) if isinstance(value, float) else value)
        if isinstance(value, float):
            written_cell.data_type = "n"  # openpyxl writes 16 digits of a float, and 17 are needed
        elif isinstance(value, str):
            written_cell.data_type = "s"  # openpyxl takes text that begins with = for a formula
            written_cell.quotePrefix = True  # and Excel does when it is edited
        if font is not None:
            written_cell.font = font
        return written_cell

    sheet.append([cell(column.name, Font(bold=True)) for column in table.columns])
    for row in zip(*columns, strict=True):
        sheet.append([cell(value) for value in row])
    if cut:
        cells = "1 cell is" if cut == 1 else f"{cut} cells are"
        yield f"{table.name}: {cells} cut to the {LONGEST_CELL:,} characters that Excel takes"


def _is_too_long(cell: object) -> bool:
    return isinstance(cell, str) and len(cell) > LONGEST_CELL


def _shortened(value: Any, column_type: str) -> object:
    """Return a cell with as much of a text, list or object as there is room for; of a list or object whole elements."""

    def beginning(count: int) -> object:
        return _plain(dict(list(value.items())[:count]) if isinstance(value, dict) else value[:count], column_type)

    return beginning(bisect_right(range(1, len(value)), LONGEST_CELL, key=lambda count: len(str(beginning(count)))))


def _plain(value: object, column_type: str) -> object:
    if is_json(column_type):
        value = as_json(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _LARGEST_EXACT:
        return str(value)
    return cell_text(value) if isinstance(value, str) else value
