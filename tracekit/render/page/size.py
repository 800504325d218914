"""How large a page may be, what is cut from a larger one, and how its texts are made harmless.

`amounts_for` says how much a page shows, and `cut_tables` shortens tables of one that would be larger. `inert` leaves
no control character and no great length in the texts of a run, and `script_json` no end of a script element.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from tracekit.model.texts import safe_text, shortened
from tracekit.render.page.contract import (
    MOST_CHARACTERS,
    MOST_IN_COMMAND,
    Cut,
    PageData,
)

MOST_CODE_BYTES = 160_000
"""Of template, scripts and styles together."""

_FEW_RANKS, _MANY_RANKS = 8, 4096
_FEW_BYTES, _MANY_BYTES = 2_000_000, 8_000_000
_BYTES_A_NUMBER = 10  # in a matrix: nine digits and a comma
_MATRICES = 6
_LEAST_ROWS = 50
_REFERRED_TO = ("groups", "collectives", "findings")
"""Tables to whose rows other tables refer by their indices."""

T = TypeVar("T")

_WITH_COMMAND = ("open_command", "explain_command", "markdown")
_PLAIN = (int, float, type(None))  # most values are: they are not worth a call


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """How much a page shows.

    Attributes:
        size_bytes: the most that the whole file may have.
        cells: of a matrix of ranks and steps.
        collectives: rows of them, those with the most time.
        pairs: of ranks that exchange messages.
    """

    size_bytes: int
    cells: int
    collectives: int
    pairs: int


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
    tables = _tables(data["result"])
    sizes = {name: _size(holder[key]) for name, (holder, key) in tables.items()}
    total = _size(data["result"])
    rows = {name: len(holder[key]) for name, (holder, key) in tables.items()}
    while total > left:
        name = max(
            (n for n in sizes if len(tables[n][0][tables[n][1]]) > _LEAST_ROWS), key=sizes.__getitem__, default=None
        )
        if name is None:
            break
        holder, key = tables[name]
        table = holder[key]
        kept = [row for row in table if row.get("rank") in important] if "rank" in table[0] else []
        holder[key] = kept if 0 < len(kept) < len(table) else table[: max(len(table) // 2, _LEAST_ROWS)]
        total -= sizes[name]
        sizes[name] = _size(holder[key])
        total += sizes[name]
    return [
        rows_cut(name, rows[name], holder[key])
        for name, (holder, key) in tables.items()
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


def inert(value: T) -> T:
    """Return a copy of plain values whose texts have no control or format characters and are not long.

    Line breaks stay. A command may be longer than other texts, as it would be another one if its end were cut off.
    """
    return _inert(value, MOST_CHARACTERS)  # type: ignore[no-any-return]


def _inert(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return _inert_text(value, most)
    if isinstance(value, dict):
        return {
            _inert_text(key, MOST_CHARACTERS) if isinstance(key, str) else key: item
            if isinstance(item, _PLAIN)
            else _inert(item, MOST_IN_COMMAND if key in _WITH_COMMAND else most)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [item if isinstance(item, _PLAIN) else _inert(item, most) for item in value]
    return value


@lru_cache(1 << 16)
def _inert_text(text: str, most: int) -> str:
    if text.isascii() and text.isprintable() and len(text) <= most:
        return text
    text = "\n".join(safe_text(line) for line in text[: most + 1].split("\n"))
    return shortened(text, most)


def script_json(value: object) -> str:
    """Return JSON that can stand in a script element: it has no `<`, and no character beyond ASCII.

    U+2028 and U+2029, which end a line in old scripts, are escaped as all others are.
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
