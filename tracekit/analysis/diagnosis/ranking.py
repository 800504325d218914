"""Which finding comes first, and which say nothing beside another."""

from __future__ import annotations

from collections.abc import Iterable

from tracekit.analysis.finding import Finding

__all__ = ["rank_findings"]


def rank_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, errors first, then what saves most, then what takes most of the step.

    Left out are those that advise the same for the same ranks as one before them, and those on a cause for which other
    findings blame the same ranks.
    """
    ranked = sorted(findings, key=_rank)
    blamed = {_cause_of_ranks(finding) for finding in ranked if finding.remedy == "ranks"}
    result: dict[object, Finding] = {}
    for place, finding in enumerate(ranked):
        if finding.remedy == "ranks" or not finding.concerned or _cause_of_ranks(finding) not in blamed:
            result.setdefault((finding.remedy, frozenset(finding.concerned)) if finding.remedy else place, finding)
    return list(result.values())


def _rank(finding: Finding) -> tuple[int, int, int, int]:
    severity = ("error", "warning", "info").index(finding.severity)
    return (min(severity, 1), -(finding.saving_ns or 0), severity, -(finding.time_ns or 0))


def _cause_of_ranks(finding: Finding) -> tuple[str | None, frozenset[int]]:
    return finding.cause, frozenset(finding.concerned)
