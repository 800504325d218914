"""How large a page may be, and what is left out where it would be larger."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracekit.render.page.contract import Cut, PageData
from tracekit.render.page.inert import script_json

__all__ = ["MOST_CODE_BYTES", "Amounts", "amounts_for", "cut_tables"]

MOST_CODE_BYTES = 200_000
"""Of template, scripts and styles together."""

_FEW_RANKS, _MANY_RANKS = 8, 4096
_FEW_BYTES, _MANY_BYTES = 2_000_000, 8_000_000
_BYTES_A_NUMBER = 10  # in a matrix: nine digits and a comma
_MATRICES = 6
_LEAST_ROWS = 50
_REFERRED_TO = ("groups", "collectives", "findings")
"""Tables of whose rows others name the places."""


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """How much a page shows.

    Attributes:
        size_bytes: the most that the whole file may have.
        cells: of a matrix of ranks and steps.
        collectives: rows of them, those with the most time.
        pairs: of ranks that exchange messages.
        bins: of a step in lanes.
        operations: of a rank in a step.
        important_ranks: those that stay in tables that are cut.
    """

    size_bytes: int
    cells: int
    collectives: int
    pairs: int
    bins: int
    operations: int
    important_ranks: int


def amounts_for(ranks: int) -> Amounts:
    """Return how much the page of a run of so many ranks shows.

    The size grows from 2 MB for 8 ranks to 8 MB for 4096, with the same power of the ranks in between.
    """
    size_bytes = _limit_bytes(ranks)
    return Amounts(
        size_bytes=size_bytes,
        cells=int(0.4 * size_bytes) // (_BYTES_A_NUMBER * _MATRICES),
        collectives=size_bytes // 5_000,
        pairs=size_bytes // 400,
        bins=600,
        operations=100,
        important_ranks=16,
    )


def _limit_bytes(ranks: int) -> int:
    if ranks <= _FEW_RANKS:
        return _FEW_BYTES
    doublings = (min(ranks, _MANY_RANKS) // _FEW_RANKS).bit_length() - 1
    of_all = (_MANY_RANKS // _FEW_RANKS).bit_length() - 1
    growth: float = (_MANY_BYTES / _FEW_BYTES) ** (doublings / of_all)
    return round(_FEW_BYTES * growth)


def cut_tables(data: PageData, important: Collection[int], size_bytes: int) -> list[Cut]:
    """Cut tables of the result, the largest first, until the page with all its code has at most `size_bytes`.

    Of a table with a row a rank or more, the rows of `important` ranks stay; of any other one, or if that is not
    enough, the first rows. Tables that others refer to stay as they are.
    """
    left = size_bytes - MOST_CODE_BYTES - _size(data["page"])
    places = _tables(data["result"])
    sizes = {name: _size(holder[key]) for name, (holder, key) in places.items()}
    total = _size(data["result"])
    rows = {name: len(holder[key]) for name, (holder, key) in places.items()}
    while total > left:
        name = max(
            (n for n in sizes if len(places[n][0][places[n][1]]) > _LEAST_ROWS), key=sizes.__getitem__, default=None
        )
        if name is None:
            break
        holder, key = places[name]
        table = holder[key]
        kept = [row for row in table if row.get("rank") in important] if "rank" in table[0] else []
        holder[key] = kept if 0 < len(kept) < len(table) else table[: max(len(table) // 2, _LEAST_ROWS)]
        total -= sizes[name]
        sizes[name] = _size(holder[key])
        total += sizes[name]
    return [
        rows_cut(name, rows[name], holder[key])
        for name, (holder, key) in places.items()
        if len(holder[key]) < rows[name]
    ]


def rows_cut(what: str, total: int, kept: Sequence[Mapping[str, Any]]) -> Cut:
    """Return what a table of which only the rows `kept` are left says to the reader."""
    text = f"The table {what} has {len(kept):,} of {total:,} rows; tracekit analyze --json has all."
    ranks = sorted({row["rank"] for row in kept}) if kept and "rank" in kept[0] else None
    return Cut(what=what, text=text, total=total, kept=len(kept), ranks=ranks)


def _tables(result: dict[str, Any]) -> dict[str, tuple[dict[str, Any], str]]:
    """Return the lists of rows in the result, by name: what holds each, and by which key."""
    tables: dict[str, tuple[dict[str, Any], str]] = {}
    for name, value in result.items():
        inner = value.items() if isinstance(value, dict) else ()
        for path, holder, key, rows in ((name, result, name, value), *((f"{name}.{k}", value, k, v) for k, v in inner)):
            if isinstance(rows, list) and rows and isinstance(rows[0], dict) and name not in _REFERRED_TO:
                tables[path] = (holder, key)
    return tables


def _size(value: object) -> int:
    return len(script_json(value))
