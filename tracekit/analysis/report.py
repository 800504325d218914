"""A run to a report: the sections that were asked for.

Comes in: a `Run`. Goes out: a `Report`, which renderers draw. Each section is one analysis, `Run -> result`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tracekit.analysis.breakdown import Breakdown, breakdown, nothing_notable
from tracekit.analysis.buckets import Buckets, buckets
from tracekit.analysis.load import Paths, load
from tracekit.analysis.overlap import Overlap, overlap
from tracekit.errors import UsageError
from tracekit.model.run import Finding, Run

__all__ = ["SECTIONS", "Report", "analyze"]

SECTIONS = ("breakdown", "overlap", "buckets")


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of an analysis; a section that was not asked for is None. `findings`: the most worthwhile first."""

    run: Run
    breakdown: Breakdown | None
    overlap: Overlap | None
    buckets: Buckets | None
    findings: tuple[Finding, ...]


def analyze(run: Run | Paths, *, only: str | Iterable[str] | None = None) -> Report:
    """Analyse a run, or the newest run below the given paths; `only` names sections (all of `SECTIONS` by default).

    Raises UsageError for a name that is no section, and whatever `load` raises.
    """
    wanted = {only} if isinstance(only, str) else set(SECTIONS if only is None else only)
    if unknown := wanted - set(SECTIONS):
        raise UsageError(f"no section {', '.join(sorted(unknown))}", hint=f"there are {', '.join(SECTIONS)}")
    if not isinstance(run, Run):
        run = load(run)
    breakdown_result = breakdown(run) if "breakdown" in wanted else None
    overlap_result = overlap(run) if "overlap" in wanted else None
    findings = [f for section in (breakdown_result, overlap_result) if section is not None for f in section.findings]
    if not findings and breakdown_result is not None:
        findings.append(nothing_notable(run))
    severity = ("error", "warning", "info")
    findings.sort(key=lambda f: (severity.index(f.severity), -(f.saving_ns or 0)))
    return Report(
        run=run,
        breakdown=breakdown_result,
        overlap=overlap_result,
        buckets=buckets(run) if "buckets" in wanted else None,
        findings=tuple(findings),
    )
