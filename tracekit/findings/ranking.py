"""Which finding comes first, and which say nothing beside others.

What saves most comes first. The saving of a finding is a replay with the changes of those before it already made. What
one rank causes is taken out of what is said of all ranks, so the rank comes first unless more remains without it. No
two are about the same time (`claims`).

In a single step a rank may be late by what it did before the recording, which no replay can change: there is no saving
then. If the others wait for it for a fifth of the step, it comes before all advice whose saving is known.

That steps are too noisy to judge comes before all, but for ranks that are slower than chance makes them: these were
judged by the steps of each rank.

Of a saving counts what is beyond its error, and half of a time whose saving is not known. That all transfers took no
time is an upper bound and no saving: it comes after these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tracekit.findings.claims import BY_TURNS, OF_ALL_TRANSFERS, OF_SOMEBODY, Claims
from tracekit.findings.finding import Finding
from tracekit.findings.thresholds import WAITED_FOR
from tracekit.model.texts import milliseconds

After = Callable[[Finding, Sequence[Finding]], Finding]
"""Returns a finding with what it saves once those of others are made."""

_CLEAR_IN_NOISE = "peers_steps_per_s"  # evidence of ranks that are slower by more than their own steps vary

_REACHED = 0.5  # of a time whose saving is not known: what a remedy may save


def rank_findings(
    findings: Sequence[Finding], step_ns: float, causes: Sequence[Mapping[str, Any]] = (), after: After | None = None
) -> list[Finding]:
    """Return the findings: errors, whoever is waited for though no replay tells why, then what saves most, then what
    takes most of the step.

    Left out are those whose time others have claimed, those that advise the same for the same ranks as one before them,
    those on a cause for which other findings blame the same ranks, and those on idle time of all ranks for a cause that
    hits them by turns.

    step_ns: the mean step. causes: rows of the table of causes. after: without it savings stay as they are.
    """
    told, claims = list[Finding](), Claims(causes, step_ns)
    by_turns = {finding.cause for finding in findings if finding.id == BY_TURNS}
    left = [finding for finding in findings if finding.remedy != "host" or finding.cause not in by_turns]
    blamed = {_cause_of_ranks(finding) for finding in left if finding.remedy == "ranks"}
    while left:
        first = min(left, key=lambda finding: _rank(_without_others(finding, left, told, after), step_ns))
        left = [finding for finding in left if finding is not first]
        advice = (first.remedy, frozenset(first.concerned))
        is_repeated = first.remedy and advice in {(other.remedy, frozenset(other.concerned)) for other in told}
        is_explained = first.remedy != "ranks" and first.concerned and _cause_of_ranks(first) in blamed
        if not is_repeated and not is_explained:
            told.append(after(first, told) if after is not None and told else first)
    # What is said of all ranks, or of all transfers, is what is left by what is said of some. Time that recording takes
    # is gone without it, whatever else could shorten it.
    told.sort(
        key=lambda each: (
            each.cause != "recording",
            not each.concerned,
            each.cause in OF_ALL_TRANSFERS or each.remedy in OF_ALL_TRANSFERS,
            each.saving_ns is None,
            each.action is None,
        )
    )
    by_claim = [claims.claimed(finding) for finding in told]
    return sorted((finding for finding in by_claim if finding is not None), key=lambda each: _rank(each, step_ns))


def _without_others(finding: Finding, left: Sequence[Finding], told: Sequence[Finding], after: After | None) -> Finding:
    """Return a finding with what it saves after those told of. What is said of all ranks saves what remains without the
    ranks that are named.
    """
    if after is None or finding.saving_ns is None:
        return finding
    named = [] if finding.remedy in OF_SOMEBODY else [each for each in left if each.remedy in OF_SOMEBODY]
    before = [*told, *(each for each in named if each.saving_ns)]
    return after(finding, before) if before else finding


def with_noise(noise: Iterable[Finding], ranked: Iterable[Finding]) -> list[Finding]:
    """Return ranked findings with those that say that steps are too noisy to judge."""
    ranked = list(ranked)
    clear = [finding for finding in ranked if _CLEAR_IN_NOISE in finding.evidence]
    return [*clear, *noise, *(finding for finding in ranked if _CLEAR_IN_NOISE not in finding.evidence)]


def reason_for_place(finding: Finding, step_ns: float) -> str:
    """Return why a finding stands where it does among the others. step_ns: the mean step."""
    if finding.severity == "error":
        return "errors come first"
    if finding.id == "noisy-steps":
        return "what follows is uncertain, as steps differ so much"
    if _waited_ns(finding) > WAITED_FOR * step_ns:
        waited = milliseconds(_waited_ns(finding), 1)
        return f"others wait {waited} ms for it, and no replay has a saving: before all savings"
    if "bound_ns" in finding.evidence:
        return "no remedy ends all transfers: an upper bound comes after savings"
    if finding.saving_ns:
        return f"it saves {milliseconds(finding.saving_ns, 1)} ms a step"
    why = f" ({finding.evidence['no_replay']})" if "no_replay" in finding.evidence else ""
    if finding.time_ns:
        return f"it is about {milliseconds(finding.time_ns, 1)} ms a step, and no saving is known{why}"
    return f"no time or saving is known{why}"


def _rank(finding: Finding, step_ns: float) -> tuple[int, bool, int, float, bool, int, int]:
    severity = ("error", "warning", "info").index(finding.severity)
    is_waited_for = _waited_ns(finding) > WAITED_FOR * step_ns
    time_ns = finding.time_ns or 0
    bound_ns = finding.evidence.get("bound_ns")
    possible_ns = min(bound_ns, time_ns) if isinstance(bound_ns, int) else time_ns
    sure_ns = (finding.saving_ns or 0) - (finding.saving_error_ns or 0)
    can_be_mended = finding.action is not None and not (finding.remedy and finding.severity == "info")
    amount_ns = _REACHED * can_be_mended * possible_ns if finding.saving_ns is None else sure_ns
    apart = 1 if bound_ns is not None else 2 * (amount_ns <= 0)
    return min(severity, 1), not is_waited_for, apart, -amount_ns, not finding.concerned, severity, -time_ns


def _waited_ns(finding: Finding) -> int:
    """Return how long the others wait in the only step, if no replay shows what that costs."""
    is_alone = finding.saving_ns is None and finding.evidence.get("steps", 1) == 1
    waited_ns = finding.evidence.get("others_wait_ns") if is_alone else None
    return waited_ns if isinstance(waited_ns, int) else 0


def _cause_of_ranks(finding: Finding) -> tuple[str | None, frozenset[int]]:
    return finding.cause, frozenset(finding.concerned)
