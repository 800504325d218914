"""What changed in cost between two commits.

    python -m benchmarks.compare BEFORE.json AFTER.json

Both files come from `python -m benchmarks --json`. The table has a row for each figure that both files have: its two
medians, their ratio, and a remark where the ratio is not significant. Above the table stands how the machines and the
inputs differ, below it which figures only one file has.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measuring.results import Row, number, read_json
from benchmarks.measuring.samples import Spread

LEAST_RUNS = 3


@dataclass(frozen=True, kw_only=True)
class Change:
    """One figure, measured at both commits."""

    benchmark: str
    what: str
    unit: str
    before: Spread
    after: Spread

    @property
    def ratio(self) -> float | None:
        return self.after.median / self.before.median if self.before.median else None

    @property
    def doubt(self) -> str:
        """Return why the ratio is not significant; empty when it is."""
        if min(self.before.count, self.after.count) < LEAST_RUNS:
            return "too few runs"
        if self.after.low <= self.before.high and self.before.low <= self.after.high:
            return "ranges overlap"
        return ""


def changes(before: Sequence[Row], after: Sequence[Row]) -> tuple[list[Change], list[str]]:
    """Return the figures that both have, in the order of `after`, and a line for each figure that only one has."""
    earlier, later = _by_name(before), _by_name(after)
    found = [
        Change(benchmark=name[0], what=name[1], unit=name[2], before=earlier[name], after=spread)
        for name, spread in later.items()
        if name in earlier
    ]
    alone = [f"only before: {name[0]}, {name[1]}" for name in earlier if name not in later]
    alone += [f"only after: {name[0]}, {name[1]}" for name in later if name not in earlier]
    return found, alone


def table(found: Sequence[Change]) -> str:
    lines = ["| benchmark | what | before | after | after / before | |", "|---|---|--:|--:|--:|---|"]
    for change in found:
        medians = [f"{number(each.median)} {change.unit}" for each in (change.before, change.after)]
        ratio = "n/a" if change.ratio is None else f"{number(change.ratio)}x"
        lines.append(f"| {change.benchmark} | {change.what} | {medians[0]} | {medians[1]} | {ratio} | {change.doubt} |")
    return "\n".join(lines)


def _by_name(rows: Sequence[Row]) -> dict[tuple[str, str, str], Spread]:
    return {(row.benchmark, row.what, row.unit): row.spread for row in rows if row.spread is not None}


def _differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    names = [*before, *(name for name in after if name not in before)]
    return [f"{name}: {before.get(name)} -> {after.get(name)}" for name in names if before.get(name) != after.get(name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    options = parser.parse_args()
    (before, machine_before), (after, machine_after) = read_json(options.before), read_json(options.after)
    found, alone = changes(before, after)
    print("\n".join([*_differences(machine_before, machine_after), "", table(found), *alone]))


if __name__ == "__main__":
    main()
