"""Which finding comes first, which time of the step each is about, and how much of it no finding explains.

Findings are the rows of the diagnosis (docs/definitions.md, "Diagnosis"): no two are about the same time. What saves
most comes first. The saving of a finding is a replay with the changes of those before it already made. What one rank
causes is taken out of what is said of all ranks, so the rank comes first unless more remains without it.

In a single step a rank may be late by what it did before the recording, which no replay can change: there is no saving
then. If the others wait for it for a fifth of the step, it comes before all advice whose saving is known.

That steps are too noisy to judge comes before all, but for ranks that are slower than chance makes them: these were
judged by the steps of each rank.

Of a saving counts what is beyond its error. That all transfers took no time is a bound and no saving: it counts half,
as does a time whose saving is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tracekit.findings.catalogue import restated
from tracekit.findings.finding import Finding
from tracekit.findings.hosts import IDLE_CAUSES
from tracekit.findings.thresholds import NOTABLE_SAVING, NOTABLE_SHARE, WAITED_FOR
from tracekit.model.texts import milliseconds

After = Callable[[Finding, Sequence[Finding]], Finding]
"""Returns a finding with what it saves once those of others are made."""

_CLEAR_IN_NOISE = "peers_steps_per_s"  # evidence of ranks that are slower by more than their own steps vary

_REACHED = 0.5  # of a time whose saving is not known, or of a bound: what a remedy may save

_OF_ALL_TRANSFERS = ("communication", "network")
BY_TURNS = "cause-by-turns"  # the finding on what hits another rank in each step
_OF_SOMEBODY = ("ranks", "load", "link")  # remedies of a rank or a link that holds up the others
_BUBBLES = ("warmup", "drain", "imbalance", "late_peer")
_WORK = ("compute", "copy")
_WAITING = ("variation", *_BUBBLES, "transfer")
_OF_SEVERAL = {
    "bubble": _BUBBLES,
    "imbalance": ("imbalance", "late_peer"),
    "communication": ("transfer",),
    "blocking_launches": ("transfer", *IDLE_CAUSES),
    "recording": (*IDLE_CAUSES, *_WORK),
    "unclassified": ("transfer", *_WORK),
    **dict.fromkeys(IDLE_CAUSES, IDLE_CAUSES),  # a finding on idle time is about all of it
}
_SLOW = {"expert_load": ("more_work", "compute"), "slow_compute": ("compute",)}
# Where the rest of what a rank costs shows, if it saves more than what it took beyond its peers.
_BEHIND = {"compute": _WORK, "more_work": _WORK, "data": ("data",)}


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
    told, claims = list[Finding](), _Claims(causes, step_ns)
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
    # What is said of all ranks, or of all transfers, is what is left by what is said of some.
    told.sort(
        key=lambda each: (
            not each.concerned,
            each.cause in _OF_ALL_TRANSFERS or each.remedy in _OF_ALL_TRANSFERS,
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
    named = [] if finding.remedy in _OF_SOMEBODY else [each for each in left if each.remedy in _OF_SOMEBODY]
    before = [*told, *(each for each in named if each.saving_ns)]
    return after(finding, before) if before else finding


class _Claims:
    """The rows of the table of causes, of which each finding takes what no other has taken."""

    def __init__(self, causes: Sequence[Mapping[str, Any]], step_ns: float) -> None:
        self._step_ns = step_ns
        self._left_ns = Counter[tuple[str, tuple[int, ...]]]()
        for row in causes:
            self._left_ns[row["cause"], tuple(row["ranks"])] += row["time_ns"]
        self._rows = frozenset(self._left_ns)
        self._transfer_ns = self._left_ns["transfer", ()]

    def claimed(self, finding: Finding) -> Finding | None:
        """Return a finding with the time that it is about; None if others have claimed that, or most of it.

        What it saves beyond is time that others wait for it: `behind_ns` in the evidence.
        """
        if not self._left_ns or finding.cause is None or (finding.cause in _WORK and finding.time_ns is None):
            return finding
        slow = [(f"slow_{cause}", finding.concerned) for cause in (finding.cause, *_SLOW.get(finding.cause, ()))]
        is_named = bool(finding.concerned) and (
            finding.remedy in _OF_SOMEBODY or any(row in self._rows for row in slow)
        )
        own = slow if is_named else [(cause, ()) for cause in _causes_of(finding)]
        if not is_named and not any(row in self._rows for row in own):
            return finding
        of_all = finding.time_ns is None or finding.cause in IDLE_CAUSES
        saving_ns = finding.saving_ns or 0
        had_ns = finding.time_ns or saving_ns
        # What compute hides of the transfers on the chain is nobody's: others have claimed exposed time.
        others_ns = self._transfer_ns - self._left_ns["transfer", ()] if finding.remedy in _OF_ALL_TRANSFERS else 0
        time_ns = self._take(own, None if of_all else max(had_ns - others_ns, saving_ns))
        behind = (*_BEHIND.get(finding.cause, IDLE_CAUSES), "variation", *_BUBBLES, *IDLE_CAUSES, "transfer", *_WORK)
        most_ns = max(had_ns, saving_ns) if is_named else saving_ns
        behind_ns = self._take([(cause, ()) for cause in (behind if is_named else _WAITING)], most_ns - time_ns)
        is_little = not is_named and time_ns < NOTABLE_SHARE * self._step_ns
        saves_little = saving_ns < NOTABLE_SAVING * self._step_ns
        is_nothing = time_ns < NOTABLE_SAVING * self._step_ns and finding.remedy == "host"
        if is_little and (
            is_nothing or 2 * time_ns < had_ns or (saves_little and (finding.remedy or time_ns < had_ns))
        ):
            return None
        evidence: dict[str, Any] = {**finding.evidence, **({"behind_ns": behind_ns} if behind_ns else {})}
        if "share" not in evidence or not finding.time_ns or is_named:
            return replace(finding, time_ns=time_ns, evidence=evidence)
        evidence["share"] *= time_ns / finding.time_ns
        return restated(finding, evidence, time_ns=time_ns)

    def _take(self, rows: Iterable[tuple[str, tuple[int, ...]]], most_ns: int | None) -> int:
        """Return how much there was to take of some rows, at most so much."""
        taken_ns = 0
        for row in rows:
            part_ns = self._left_ns[row] if most_ns is None else min(self._left_ns[row], max(most_ns - taken_ns, 0))
            self._left_ns[row] -= part_ns
            taken_ns += part_ns
        return taken_ns


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
        return "no remedy ends all transfers: half of their time counts"
    if finding.saving_ns:
        return f"it saves {milliseconds(finding.saving_ns, 1)} ms a step"
    why = f" ({finding.evidence['no_replay']})" if "no_replay" in finding.evidence else ""
    if finding.time_ns:
        return f"it is about {milliseconds(finding.time_ns, 1)} ms a step, and no saving is known{why}"
    return f"no time or saving is known{why}"


def _rank(finding: Finding, step_ns: float) -> tuple[int, bool, float, bool, int, int]:
    severity = ("error", "warning", "info").index(finding.severity)
    is_waited_for = _waited_ns(finding) > WAITED_FOR * step_ns
    time_ns = finding.time_ns or 0
    bound_ns = finding.evidence.get("bound_ns")
    possible_ns = min(bound_ns, time_ns) if isinstance(bound_ns, int) else time_ns
    sure_ns = (finding.saving_ns or 0) - (finding.saving_error_ns or 0)
    can_be_mended = finding.action is not None and not (finding.remedy and finding.severity == "info")
    amount_ns = _REACHED * can_be_mended * possible_ns if finding.saving_ns is None else sure_ns
    return min(severity, 1), not is_waited_for, -amount_ns, not finding.concerned, severity, -time_ns


def _waited_ns(finding: Finding) -> int:
    """Return how long the others wait in the only step, if no replay shows what that costs."""
    is_alone = finding.saving_ns is None and finding.evidence.get("steps", 1) == 1
    waited_ns = finding.evidence.get("others_wait_ns") if is_alone else None
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
    if cause in IDLE_CAUSES and (finding.remedy == "ranks" or finding.id == BY_TURNS):
        return (f"slow_{cause}",)
    return _OF_SEVERAL.get(cause, (cause, f"slow_{cause}"))
