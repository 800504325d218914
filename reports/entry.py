"""What a row of the gallery is, and where in a report's JSON the number stands that answers what was planted."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Summary = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a report says: a number in the unit of what was planted, its error where the report has one, and words."""

    value: float
    error: float = 0.0
    words: str


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A defect, or what a way of training costs by itself.

    Attributes:
        what: In words, without the number.
        value: How much of it, in `unit`.
        found: Reads a report's JSON; raises LookupError where it does not say so.
        within: How far the found value may be off, as a share of `value`, besides twice the report's own error.
        decimals: Of the found value, as it is shown.
    """

    what: str
    value: float
    unit: str
    found: Callable[[Summary], Found]
    within: float = 0.0
    decimals: int = 1

    def agrees_with(self, found: Found) -> bool:
        return abs(found.value - self.value) <= self.within * self.value + 2 * found.error

    def check(self, summary: Summary) -> str | None:
        """Return in one line what is wrong with a report that does not have what was planted, or None."""
        try:
            found = self.found(summary)
        except LookupError as error:
            return f"{self.what}, {self.value:g} {self.unit}: {error}"
        wrong = f"{self.what}, {self.value:g} {self.unit}: the report has {found.value:.4g} ± {found.error:.2g}"
        return None if self.agrees_with(found) else wrong


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A run of the gallery.

    Attributes:
        folder: Of its report; also the name of its probe, unless `probe` has another one.
        trains: The kind of training, in words.
        ranks: Processes under torchrun; 0 starts one process without it.
        options: Of the probe. `{value:g}` is the planted value.
        needs: A module without which the probe cannot run.
        torchrun: More options of torchrun.
        environment: Variables that the probe's docstring asks for.
    """

    folder: str
    trains: str
    ranks: int
    options: str
    planted: Planted
    probe: str = ""
    needs: str | None = None
    torchrun: str = ""
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def command(self) -> list[str]:
        start = f"torchrun --standalone --nproc-per-node {self.ranks} {self.torchrun}" if self.ranks else "python"
        options = self.options.format(value=self.planted.value)
        return f"{start} probes/{self.probe or self.folder}.py {options}".split()

    def row(self, summary: Summary) -> str:
        """Return the line of README's table: what was planted, beside what this report found."""
        planted, found = self.planted, self.planted.found(summary)
        value, error = (f"{number:.{planted.decimals}f}" for number in (found.value, found.error))
        places = {"page": "report.html", "tables": "full.txt", "JSON": "summary.json"}
        links = ", ".join(f"[{name}]({self.folder}/{file})" for name, file in places.items())
        cells = (
            f"[{self.folder}]({self.folder}/terminal.txt)",
            f"{self.trains}, {self.ranks or 1} rank{'s' * (self.ranks > 1)}",
            planted.what,
            f"{planted.value:g} {planted.unit}",
            f"{value} ± {error} {planted.unit}" if found.error else f"{value} {planted.unit}",
            f"{found.words} ({links})",
        )
        return f"| {' | '.join(cells)} |"


# ---- readers of a report --------------------------------------------------------------------------------------------


def saving_ms(**expected: Any) -> Callable[[Summary], Found]:
    """Read what the finding saves a step; `expected` are fields of it or of its evidence."""

    def read(summary: Summary) -> Found:
        place, finding = _finding(summary, expected)
        if finding["saving_ns"] is None:
            raise LookupError(f"finding {place} has no saving")
        value, error = finding["saving_ns"] / 1e6, finding["saving_error_ns"] / 1e6
        return Found(value=value, error=error, words=f"what finding {place} saves, “{finding['text']}”")

    return read


def evidence(name: str, scale: float = 1.0, **expected: Any) -> Callable[[Summary], Found]:
    """Read a number of the finding's evidence, times `scale`. A dot leads into a part: `longer_parts_ns.compute`."""

    def read(summary: Summary) -> Found:
        place, finding = _finding(summary, expected)
        value = functools.reduce(lambda part, key: part[key], name.split("."), finding["evidence"])
        return Found(value=value * scale, words=f"finding {place}, “{finding['text']}”")

    return read


def column(table: str, name: str, words: str, *, scale: float = 1.0, **expected: Any) -> Callable[[Summary], Found]:
    """Read the mean of a column over the rows of a table that have these values."""

    def read(summary: Summary) -> Found:
        rows = [row for row in summary[table] if all(row[key] == value for key, value in expected.items())]
        if not rows:
            raise LookupError(f"{table} has no row with {expected}")
        return Found(value=scale * sum(row[name] for row in rows) / len(rows), words=words)

    return read


def reduced_share(summary: Summary) -> Found:
    """Read how many bytes all-reduces have, in percent of those of the gradients in DDP's buckets."""
    gradients_bytes = sum(bucket["size_bytes"] for bucket in summary["bucket_map"])
    steps = sum(row["steps"] for row in summary["ranks"])
    reduced_bytes = sum(row["size_bytes"] for row in summary["communication"] if row["kind"] == "all_reduce")
    value = 100 * reduced_bytes / steps / gradients_bytes
    return Found(value=value, words=f"all-reduces of {reduced_bytes / steps / 1e3:.1f} kB a step and rank")


def late_rank(rank: int, ms: float, cause: str = "compute") -> Planted:
    """Plant one rank for which all others wait, in each step."""
    verb = {"compute": "computes", "data": "loads data", "host": "is between operations"}[cause]
    return Planted(
        what=f"rank {rank} {verb} longer, in each step",
        value=ms,
        unit="ms",
        found=saving_ms(rank=rank, cause=cause),
        within=0.15,
    )


def _finding(summary: Summary, expected: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the first such finding, and its place in the report, from 1."""
    for place, finding in enumerate(summary["findings"], start=1):
        fields = finding["evidence"] | {name: finding[name] for name in ("rank", "cause")}
        if all(fields.get(name) == value for name, value in expected.items()):
            return place, finding
    raise LookupError(f"no finding has {expected}")
