"""Results of benchmarks as a Markdown table, and as JSON for comparing two commits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.measuring.samples import Spread, spread

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure.

    Attributes:
        unit: "x" for a ratio of two costs of the same round.
        values: one a round; empty where it could not be measured.
        target: the value that the project wants; missing it is no failure.
        reason: why there are no values, where that is known.
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
    """Return the rows as a Markdown table."""
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
    """Return the value with three significant digits."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def write_json(path: Path, rows: Sequence[Row], machine: dict[str, Any]) -> None:
    """Write the rows; `machine` holds the facts of where and what was measured."""
    stated = [asdict(row) | {"spread": None if row.spread is None else asdict(row.spread)} for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"format": FORMAT, "machine": machine, "rows": stated}, indent=2) + "\n")


def read_json(path: Path) -> tuple[list[Row], dict[str, Any]]:
    """Return the rows and the facts that `write_json` wrote. Raises ValueError when the file has another format."""
    stated = json.loads(path.read_text())
    if not isinstance(stated, dict) or stated.get("format") != FORMAT:
        raise ValueError(f"{path}: not results of benchmarks in format {FORMAT}")
    rows = []
    for fields in stated["rows"]:
        fields.pop("spread")
        rows.append(Row(**fields | {"values": tuple(fields["values"])}))
    return rows, stated["machine"]
