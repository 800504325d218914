"""Tables of text: what every output draws, made of what columns and tables say of how they are shown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tracekit.model.table import Column, Display, Rows, Table
from tracekit.model.texts import percent

_SPEC = re.compile(r"(?:(?P<title>[^={]*)=)?(?P<cell>[^?]*)(?P<optional>\??)")
_VALUE = re.compile(r"{(?P<name>\w+)(?:(?P<by>[/%-])(?P<other>\w+))?}")
_UNKNOWN = ("n/a", "-", "")
_LEAST_SHARE = 0.01  # of a row that is shown, where its table says of which share
_SHARE_DIGITS = 4  # `100%`: shares behind another number are aligned


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table of text.

    Attributes:
        left: for each column whether it is aligned left, as the first one and texts are.
        rows: of as many cells as there are heads.
    """

    title: str
    heads: Sequence[str]
    left: Sequence[bool]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Bars of a picture.

    Attributes:
        unit: of the axis, with what the numbers are.
        segments: for each segment of the bars its length in each.
    """

    title: str
    unit: str
    labels: Sequence[str]
    segments: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class _Cell:
    """A cell of every row. `template` has the names of columns in braces."""

    template: str
    head: str
    columns: Mapping[str, Column]

    @property
    def names(self) -> list[str]:
        return [match["name"] for match in _VALUE.finditer(self.template)]

    def text(self, row: Mapping[str, object]) -> str:
        """Return the cell of a row; of one whose values are all unknown what stands for the first."""
        values = [_value(row, match) for match in _VALUE.finditer(self.template)]
        if values and all(value is None for value in values):
            return self.columns[self.names[0]].null
        texts = iter(values)
        return _VALUE.sub(lambda match: self._written(match, next(texts)), self.template)

    def _written(self, match: re.Match[str], value: object) -> str:
        column = self.columns[match["name"]]
        is_share = match["by"] == "%" and isinstance(value, int | float)
        text = percent(value) if is_share else column.text(value)  # type: ignore[arg-type]
        return text.rjust(_SHARE_DIGITS) if match.start() and column.is_number and text.endswith("%") else text


def grid_of(
    table: Table,
    rows: Rows,
    *,
    display: Display | None = None,
    total: int | None = None,
    all_by: str = "--json",
) -> Grid:
    """Return rows of a table as people see them.

    Rows may have texts and times besides the columns of the table, which cells may name. The title names those of the
    first row.

    Args:
        display: another one than that of the table.
        total: how many rows there are; by default those that are given.
        all_by: what shows all of them.
    """
    display = display or table.display
    assert display is not None
    shown = _shown(display, rows)
    total = len(rows) if total is None else total
    columns = {column.name: column for column in table.columns}
    title = _cell_of(display.title, columns).text(rows[0]) if rows else display.title
    cells = [cell for spec in display.cells.split(" | ") if (cell := _cell(spec, columns, shown)) is not None]
    return Grid(
        title=title + f"; {len(shown)} of {total} rows, {all_by} has all" * (len(shown) < total),
        heads=[cell.head for cell in cells],
        left=[not at or not cell.columns[cell.names[0]].is_number for at, cell in enumerate(cells)],
        rows=[[cell.text(row) for cell in cells] for row in shown],
    )


def bars_of(table: Table, rows: Rows, *, most: int | None) -> Bars:
    """Return a bar for each row, the largest first where its table says so."""
    assert table.display is not None
    display = replace(table.display, most=most, least=None)
    shown, columns = _shown(display, rows), {column.name: column for column in table.columns}
    grid = grid_of(table, shown, display=replace(display, most=None, sort=None))
    title, _, unit = grid.title.partition(" (")
    segments: dict[str, list[float]] = {}
    for cell in filter(None, (_cell(spec, columns, shown) for spec in display.bars.split(" | "))):
        (match,) = _VALUE.finditer(cell.template)
        values, scale = [_value(row, match) for row in shown], cell.columns[match["name"]].scale
        segments[cell.head] = [value / scale if isinstance(value, int | float) else 0.0 for value in values]
    return Bars(
        title=title, unit=unit.removesuffix(")"), labels=[_label(grid, row) for row in grid.rows], segments=segments
    )


def _label(grid: Grid, row: Sequence[str]) -> str:
    """Return the texts of a row, and before its number what that is."""
    cells = zip(grid.heads, row, grid.left, strict=True)
    texts = [f"{head} {cell}" if cell.isdigit() else cell for head, cell, left in cells if left]
    return ", ".join(text for text in texts if text not in _UNKNOWN) or _UNKNOWN[0]


def _shown(display: Display, rows: Rows) -> Rows:
    if (by := display.sort) is not None:
        rows = sorted(rows, key=lambda row: row[by], reverse=True)  # type: ignore[arg-type, return-value]
    if (share := display.least) is not None:
        rows = [row for row in rows if row[share] >= _LEAST_SHARE]  # type: ignore[operator]
    return rows[: display.most]


def _cell(spec: str, columns: Mapping[str, Column], rows: Rows) -> _Cell | None:
    """Return what a text of `Display.cells` asks for; None where it is left out."""
    match = _SPEC.fullmatch(spec)
    assert match is not None, spec
    template = match["cell"] if "{" in match["cell"] else f"{{{match['cell']}}}"
    cell = _cell_of(template, columns, match["title"])
    if match["optional"] and all(row[name] is None or row[name] is False for row in rows for name in cell.names):
        return None
    return cell


def _cell_of(template: str, columns: Mapping[str, Column], head: str | None = None) -> _Cell:
    names = [value["name"] for value in _VALUE.finditer(template)]
    known = {name: columns.get(name) or _column_named(name) for name in names}
    return _Cell(template, head or (known[names[0]].heading if names else ""), known)


def _column_named(name: str) -> Column:
    """Return the column of a value that rows have beside their table: a time or share by its name, else a text."""
    unit = "ns" if name.endswith("_ns") else "ratio" if name.endswith("share") else ""
    return Column(name, "float?" if unit else "str?", unit, "")


def _value(row: Mapping[str, object], match: re.Match[str]) -> object:
    """Return the value of a column, or its quotient with another; None where that is not known."""
    value = row[match["name"]]
    if match["by"] is None or value is None:
        return value
    other = row[match["other"]]
    assert isinstance(value, int | float)
    if match["by"] == "-":
        return max(value - other, 0) if isinstance(other, int | float) else None
    return value / other if isinstance(other, int | float) and other else None
