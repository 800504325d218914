"""Which finding comes first, which say nothing beside another, and how much of the step no finding explains.

What saves most comes first. A rank may be late by what it did before the recording, which no replay can change: there
is no saving then. If the others wait for it for a fifth of the step, it comes before all advice whose saving is known.

That steps are too noisy to judge comes before all, but for ranks that are slower than chance makes them: these were
judged by the steps of each rank.

That all transfers took no time is a bound and no remedy. It follows a finding that says what to do about transfers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracekit.findings.finding import Finding
from tracekit.findings.hosts import IDLE_CAUSES
from tracekit.findings.thresholds import WAITED_FOR
from tracekit.model.texts import milliseconds

_OF_ALL_TRANSFERS = ("communication", "network")

_CLEAR_IN_NOISE = "peers_steps_per_s"  # evidence of ranks that are slower by more than their own steps vary

_OF_SEVERAL = {
    "bubble": ("warmup", "drain", "imbalance", "late_peer"),
    "communication": ("transfer",),
    **dict.fromkeys(IDLE_CAUSES, IDLE_CAUSES),  # a finding on idle time is about all of it
}
_WORK = ("compute", "copy")


def rank_findings(findings: Iterable[Finding], step_ns: float) -> list[Finding]:
    """Return the findings: errors, whoever is waited for though no replay tells why, then what saves most, then what
    takes most of the step.

    Left out are those that advise the same for the same ranks as one before them, those on a cause for which other
    findings blame the same ranks, and those on idle time of all ranks for a cause that hits them by turns.
    step_ns: the mean step.
    """
    ranked = _remedies_before_bounds(sorted(findings, key=lambda finding: _rank(finding, step_ns)))
    by_turns = {finding.cause for finding in ranked if finding.id == "cause-by-turns"}
    ranked = [finding for finding in ranked if finding.remedy != "host" or finding.cause not in by_turns]
    blamed = {_cause_of_ranks(finding) for finding in ranked if finding.remedy == "ranks"}
    result: dict[object, Finding] = {}
    for index, finding in enumerate(ranked):
        if finding.remedy == "ranks" or not finding.concerned or _cause_of_ranks(finding) not in blamed:
            result.setdefault((finding.remedy, frozenset(finding.concerned)) if finding.remedy else index, finding)
    return list(result.values())


def with_noise(noise: Iterable[Finding], ranked: Iterable[Finding]) -> list[Finding]:
    """Return ranked findings with those that say that steps are too noisy to judge."""
    ranked = list(ranked)
    clear = [finding for finding in ranked if _CLEAR_IN_NOISE in finding.evidence]
    return [*clear, *noise, *(finding for finding in ranked if _CLEAR_IN_NOISE not in finding.evidence)]


def _remedies_before_bounds(ranked: list[Finding]) -> list[Finding]:
    remedies = [finding for finding in ranked if finding.cause == "transfer" and not finding.remedy]
    remedies = [finding for finding in remedies if finding.saving_ns is not None]
    bound = next((finding for finding in ranked if finding.remedy in _OF_ALL_TRANSFERS), None)
    if bound is None or not remedies:
        return ranked
    others = [finding for finding in ranked if finding is not bound]
    index = max(ranked.index(bound), 1 + others.index(remedies[0]))
    return [*others[:index], bound, *others[index:]]


def reason_for_place(finding: Finding, step_ns: float) -> str:
    """Return why a finding stands where it does among the others. step_ns: the mean step."""
    if finding.severity == "error":
        return "errors come first"
    if finding.id == "noisy-steps":
        return "what follows is uncertain, as steps differ so much"
    if _waited_ns(finding) > WAITED_FOR * step_ns:
        waited = milliseconds(_waited_ns(finding), 1)
        return f"others wait {waited} ms for it, and no replay has a saving: before all savings"
    if finding.saving_ns:
        return f"it saves {milliseconds(finding.saving_ns, 1)} ms a step"
    why = f" ({finding.evidence['no_replay']})" if "no_replay" in finding.evidence else ""
    if finding.time_ns:
        return f"it is about {milliseconds(finding.time_ns, 1)} ms a step, and no saving is known{why}"
    return f"no time or saving is known{why}"


def _rank(finding: Finding, step_ns: float) -> tuple[int, bool, int, int, int]:
    severity = ("error", "warning", "info").index(finding.severity)
    is_waited_for = _waited_ns(finding) > WAITED_FOR * step_ns
    return (min(severity, 1), not is_waited_for, -(finding.saving_ns or 0), severity, -(finding.time_ns or 0))


def _waited_ns(finding: Finding) -> int:
    """Return how long the others wait, if no replay shows what that costs."""
    waited_ns = finding.evidence.get("others_wait_ns") if finding.saving_ns is None else None
    return waited_ns if isinstance(waited_ns, int) else 0


def _cause_of_ranks(finding: Finding) -> tuple[str | None, frozenset[int]]:
    return finding.cause, frozenset(finding.concerned)


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
    found = {name for finding in findings for name in _causes_of(finding)}
    work_ns = sum(row["time_ns"] for row in causes if row["cause"] in _WORK)
    rest = Counter[str]()
    for row in causes:
        if row["cause"] not in found and row["cause"] not in _WORK:
            rest[row["cause"]] += row["time_ns"]
    return Coverage(
        step_ns=step_ns,
        work_ns=work_ns,
        found_ns=step_ns - work_ns - sum(rest.values()),
        unexplained_ns=dict(sorted(rest.items(), key=lambda item: -item[1])),
    )


def _causes_of(finding: Finding) -> tuple[str, ...]:
    """Return the causes of a step's time that a finding is about."""
    cause = finding.cause
    if cause is None:
        return ()
    if cause in IDLE_CAUSES and (finding.remedy == "ranks" or finding.id == "cause-by-turns"):
        return (f"slow_{cause}",)
    return _OF_SEVERAL.get(cause, (cause, f"slow_{cause}"))
