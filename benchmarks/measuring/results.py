"""What benchmarks found, as a table for people and as JSON that a later commit is compared with.

Comes in: rows, each with a value a round. Goes out: Markdown, JSON, and rows read back from JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.measuring.samples import Spread, spread

__all__ = ["Row", "markdown", "number", "read_json", "row", "write_json"]

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure: a value a round, or none, with the reason why where it is known.

    `unit` "x" is a ratio of two costs of one round. `target` is what the project wants of it; nothing fails by it.
    """

    benchmark: str
    what: str
    unit: str
    values: tuple[float, ...] = ()
    target: str = ""
    reason: str = ""

    @property
    def spread(self) -> Spread | None:
        return spread(self.values) if self.values else None


def row(benchmark: str, what: str, unit: str, values: Sequence[float], target: str = "") -> Row:
    return Row(benchmark=benchmark, what=what, unit=unit, values=tuple(values), target=target)


def markdown(rows: Iterable[Row]) -> str:
    """A table that stands in a README as it is."""
    lines = ["| benchmark | what | median | range | runs | wanted |", "|---|---|--:|--:|--:|--:|"]
    for each in rows:
        found = each.spread
        if found is None:
            cells = ["n/a", each.reason or "not measurable here", "", each.target]
        else:
            between = f"{number(found.low)} - {number(found.high)}" if found.count > 1 else ""
            cells = [f"{number(found.median)} {each.unit}".replace(" x", "x"), between, str(found.count), each.target]
        lines.append(f"| {' | '.join([each.benchmark, each.what, *cells])} |")
    return "\n".join(lines)


def number(value: float) -> str:
    """Three digits that count."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def write_json(path: Path, rows: Sequence[Row], machine: dict[str, Any]) -> None:
    """`machine` says where and what was measured."""
    stated = [asdict(row) | {"spread": None if row.spread is None else asdict(row.spread)} for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"format": FORMAT, "machine": machine, "rows": stated}, indent=2) + "\n")


def read_json(path: Path) -> tuple[list[Row], dict[str, Any]]:
    """Rows and machine, as they were written. Raises ValueError when the file is of another format."""
    stated = json.loads(path.read_text())
    if not isinstance(stated, dict) or stated.get("format") != FORMAT:
        raise ValueError(f"{path}: not results of benchmarks in format {FORMAT}")
    rows = []
    for fields in stated["rows"]:
        fields.pop("spread")
        rows.append(Row(**fields | {"values": tuple(fields["values"])}))
    return rows, stated["machine"]
