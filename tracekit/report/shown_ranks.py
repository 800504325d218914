"""Which ranks, and which step, are shown where not all are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from tracekit.explain.step_time.step_lengths import typical_step
from tracekit.findings.finding import Finding
from tracekit.model.summary import RankSummary
from tracekit.report.report import Report

SHOWN_RANKS = 8
Reason = Literal["blamed", "waits", "critical", "median", "lowest"]
"""Why a rank is shown where not all are."""

_USUAL = 0.1  # of the median: a step is as long as others if it differs by less


def ranks_to_show(report: Report, count: int) -> list[int]:
    """Return at most `count` ranks, ascending: see `reasons_to_show`."""
    return list(reasons_to_show(report, count))


def reasons_to_show(report: Report, count: int) -> dict[int, Reason]:
    """Return at most `count` ranks, ascending, each with the first reason for it.

    Findings blame it, it waits longest for a blamed one, it bounds the steps most, its share of exposed communication
    is the median, or it is one of the lowest.
    """
    measured = _by_wait(report)
    blamed = [rank for finding in report.findings for rank in finding.concerned]
    most_blamed = len(blamed) if len(measured) <= count else max(count - 2, 1)
    reasons: dict[int, Reason] = {}
    ranks_of: tuple[tuple[Reason, Sequence[int]], ...] = (
        ("blamed", blamed[:most_blamed]),
        ("waits", [_longest_wait(finding)["rank"] for finding in report.findings[:1] if _longest_wait(finding)]),
        ("critical", _critical(report)),
        ("median", _median(measured)),
        ("lowest", sorted(measured)),
    )
    for reason, ranks in ranks_of:
        for rank in ranks:
            reasons.setdefault(rank, reason)
    known = set(measured)
    chosen = [rank for rank in reasons if rank in known][:count]
    return {rank: reasons[rank] for rank in sorted(chosen)}


def evidence_ranks(report: Report, finding: Finding) -> list[int]:
    """Return whom a finding is about, who waits longest for them, and a typical rank; all are shown if empty."""
    measured = _by_wait(report)
    if not (concerned := [rank for rank in finding.concerned if rank in measured]):
        return []
    waits = [rank for rank in (_longest_wait(finding).get("rank"),) if rank in measured]
    return list(dict.fromkeys([*concerned, *waits, *_median([rank for rank in measured if rank not in concerned])]))


def step_to_show(report: Report) -> int | None:
    """Return the step that the first finding is about, of several the one of median length; else that of its longest
    wait, if it is as long as others are; else the one of median length. None without steps that all ranks completed.
    """
    lengths_ns, typical = report.run.step_lengths_ns, typical_step(report.run)
    if typical is None or not report.findings:
        return typical
    first = report.findings[0]
    if first.step is not None:
        return first.step
    if isinstance(late := first.evidence.get("late_steps"), list):
        by_length: list[int] = sorted(late, key=lengths_ns.__getitem__)
        return by_length[len(by_length) // 2]
    step = _longest_wait(first).get("step", typical)
    length_ns, usual_ns = lengths_ns.get(step, 0), lengths_ns[typical]
    return step if abs(length_ns - usual_ns) <= _USUAL * usual_ns else typical


def _by_wait(report: Report) -> list[int]:
    """Return the ranks that completed a step, those that wait least first."""
    shown = (summary for summary in report.run.ranks if any(step.complete for step in summary.steps))
    return [rank for _, rank in sorted((_exposed(summary), summary.rank) for summary in shown)]


def _median(ranks: Sequence[int]) -> Sequence[int]:
    return ranks[len(ranks) // 2 :][:1]


def _exposed(summary: RankSummary) -> float:
    """Return the share of exposed communication in the rank's complete steps."""
    steps = [step for step in summary.steps if step.complete]
    return sum(step.exposed_comm_ns for step in steps) / max(sum(step.step_ns for step in steps), 1)


def _longest_wait(finding: Finding) -> dict[str, int]:
    wait = finding.evidence.get("longest_wait")
    return wait if isinstance(wait, dict) else {}


def _critical(report: Report) -> list[int]:
    """Return the rank that the chain that bounds the steps is on for longest."""
    path = report.critical_path
    times: Counter[int] = Counter()
    for interval in () if path is None else path.intervals:
        times[interval.rank] += interval.end_ns - interval.start_ns
    return [rank for rank, _ in times.most_common(1)]
