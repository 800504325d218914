"""How much of the mean step the findings are about, and what no finding explains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracekit.findings.finding import Finding
from tracekit.findings.hosts import IDLE_CAUSES

__all__ = ["Coverage", "coverage"]

_OF_SEVERAL = {
    "bubble": ("warmup", "drain", "imbalance", "late_peer"),
    "communication": ("transfer",),
    **dict.fromkeys(IDLE_CAUSES, IDLE_CAUSES),  # a finding on idle time is about all of it
}
_WORK = ("compute", "copy")


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The mean step, in ns: it is the sum of work, what findings are about, and the rest.

    Attributes:
        work_ns: compute and copies.
        unexplained_ns: causes that no finding is about, the longest first.
    """

    step_ns: int
    work_ns: int
    found_ns: int
    unexplained_ns: Mapping[str, int]


def coverage(step_ns: int, causes: Sequence[Mapping[str, Any]], findings: Iterable[Finding]) -> Coverage:
    """Return what findings explain of a step. causes: rows of the table of causes, whose times sum to the step."""
    found = {name for finding in findings if finding.cause is not None for name in _causes_of(finding.cause)}
    work_ns = sum(row["time_ns"] for row in causes if row["cause"] in _WORK)
    rest: dict[str, int] = {}
    for row in causes:
        if row["cause"] not in found and row["cause"] not in _WORK:
            rest[row["cause"]] = rest.get(row["cause"], 0) + row["time_ns"]
    return Coverage(
        step_ns=step_ns,
        work_ns=work_ns,
        found_ns=step_ns - work_ns - sum(rest.values()),
        unexplained_ns=dict(sorted(rest.items(), key=lambda item: -item[1])),
    )


def _causes_of(cause: str) -> tuple[str, ...]:
    """Return the causes of a step's time that a finding with this cause is about."""
    return _OF_SEVERAL.get(cause, (cause, f"slow_{cause}"))
