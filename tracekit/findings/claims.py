"""Which time of the step each finding is about, and how much of it no finding explains.

Findings are the rows of the diagnosis (docs/definitions.md, "Diagnosis"). A finding takes the rows of its cause, as far
as no finding before it has taken them, so no two are about the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tracekit.findings.catalogue import restated
from tracekit.findings.finding import Finding
from tracekit.findings.hosts import IDLE_CAUSES
from tracekit.findings.thresholds import BUBBLE_RATIO, NOTABLE_SAVING, NOTABLE_SHARE

BY_TURNS = "cause-by-turns"
"""The id of the finding on what hits another rank in each step."""
OF_ALL_TRANSFERS = ("communication", "network")
OF_SOMEBODY = ("ranks", "load", "link")
"""Remedies of a rank or a link that holds up the others."""

_BUBBLES = ("warmup", "drain", "imbalance", "late_peer")
_PARTS_OF_BUBBLES = ("warmup_ns", "drain_ns", "imbalance_ns", "transfer_ns", "late_peer_ns", "other_ns")
# What a stage that is named causes of them, or a rank or link.
_BUBBLES_BEHIND = {"stages": ("imbalance_ns",)} | dict.fromkeys(OF_SOMEBODY, ("imbalance_ns", "late_peer_ns"))
_WORK = ("compute", "copy")
_WAITING = ("variation", *_BUBBLES, "transfer")
_OF_SEVERAL = {
    "bubble": _BUBBLES,
    "imbalance": ("imbalance", "late_peer"),
    "expert_load": ("slow_more_work", "slow_compute"),
    "communication": ("transfer",),
    "blocking_launches": ("transfer", *IDLE_CAUSES),
    "recording": (*IDLE_CAUSES, *_WORK),
    "unclassified": ("transfer", *_WORK),
    **dict.fromkeys(IDLE_CAUSES, IDLE_CAUSES),  # a finding on idle time is about all of it
}
_SLOW = {"expert_load": ("more_work", "compute"), "slow_compute": ("compute",)}
# Where the rest of what a rank costs shows, if it saves more than what it took beyond its peers.
_BEHIND = {"compute": _WORK, "more_work": _WORK, "data": ("data",)}

Row = tuple[str, tuple[int, ...]]
"""A cause of the step's time, and the ranks that are the cause; none if it is on no rank in particular."""


class Claims:
    """The rows of the table of causes, of which each finding takes what no other has taken."""

    def __init__(self, causes: Sequence[Mapping[str, Any]], step_ns: float) -> None:
        """causes: rows of the table of causes. step_ns: the mean step."""
        self._step_ns = step_ns
        self._left_ns = Counter[Row]()
        for row in causes:
            self._left_ns[row["cause"], tuple(row["ranks"])] += row["time_ns"]
        self._rows = frozenset(self._left_ns)
        self._transfer_ns = self._left_ns["transfer", ()]
        self._bubbles_behind = set[str]()
        self._is_recording_told = False

    def claimed(self, finding: Finding) -> Finding | None:
        """Return a finding with the time that it is about; None if others have claimed that, or most of it.

        What it saves beyond is time that others wait for it: `behind_ns` in the evidence.
        """
        if finding.concerned:
            self._bubbles_behind.update(_BUBBLES_BEHIND.get(finding.remedy or "", ()))
        if finding.id == "pipeline-bubble" and self._bubbles_behind:
            if (rest := _without_parts(finding, self._bubbles_behind)) is None:
                return None
            finding = rest
        if finding.cause is None or (finding.cause in _WORK and finding.time_ns is None):
            return finding
        slow = [(f"slow_{cause}", finding.concerned) for cause in (finding.cause, *_SLOW.get(finding.cause, ()))]
        names_ranks = finding.remedy in OF_SOMEBODY or any(row in self._rows for row in slow)
        if finding.concerned and names_ranks and self._rows:
            return self._of_ranks(finding, slow)
        own = [(cause, ()) for cause in _causes_of(finding)]
        return self._of_all(finding, own) if any(row in self._rows for row in own) else finding

    def _of_ranks(self, finding: Finding, own: Sequence[Row]) -> Finding | None:
        most_ns = max(finding.time_ns or 0, finding.saving_ns or 0)
        time_ns = self._take(own, None)
        if not time_ns and not finding.saving_ns and any(row in self._rows for row in own):
            return None  # another finding has told why, such as the load of its experts
        own_work = _BEHIND.get(finding.cause or "", IDLE_CAUSES)
        if not time_ns and not finding.saving_ns:  # the critical path passes other ranks, and no replay tells why
            time_ns = self._take(_of_nobody(*own_work), most_ns)
        behind_ns = self._take(_of_nobody(*own_work, *_WAITING, *IDLE_CAUSES, *_WORK), most_ns - time_ns)
        return replace(finding, time_ns=time_ns, evidence=_with_behind(finding, behind_ns))

    def _of_all(self, finding: Finding, own: Sequence[Row]) -> Finding | None:
        saving_ns = finding.saving_ns or 0
        had_ns = finding.time_ns or saving_ns
        # What compute hides of the transfers on the chain is nobody's: others have claimed exposed time.
        others_ns = self._transfer_ns - self._left_ns["transfer", ()] if finding.remedy in OF_ALL_TRANSFERS else 0
        takes_all = finding.time_ns is None or finding.cause in IDLE_CAUSES
        time_ns = self._take(own, None if takes_all else max(had_ns - others_ns, saving_ns))
        behind_ns = self._take(_of_nobody(*_WAITING), saving_ns - time_ns)
        if self._is_left_over(finding, time_ns, had_ns):
            return None
        self._is_recording_told |= finding.cause == "recording"
        if self._is_recording_told and finding.cause in IDLE_CAUSES and finding.saving_ns:
            finding = replace(finding, saving_ns=min(saving_ns, time_ns + behind_ns))  # the rest goes without recording
        evidence = _with_behind(finding, behind_ns)
        if "share" not in evidence or not finding.time_ns:
            return replace(finding, time_ns=time_ns, evidence=evidence)
        evidence["share"] *= time_ns / finding.time_ns
        return restated(finding, evidence, time_ns=time_ns)

    def _is_left_over(self, finding: Finding, time_ns: int, had_ns: int) -> bool:
        """Return whether so little is left of a finding's time, or of its saving, that it is not worth a sentence."""
        if time_ns >= NOTABLE_SHARE * self._step_ns:
            return False
        least_ns = NOTABLE_SAVING * self._step_ns
        if finding.remedy == "host" and time_ns < least_ns:
            return True
        saves_little = (finding.saving_ns or 0) < least_ns
        return 2 * time_ns < had_ns or (saves_little and (finding.remedy is not None or time_ns < had_ns))

    def _take(self, rows: Iterable[Row], most_ns: int | None) -> int:
        """Return how much there was to take of some rows, at most so much."""
        taken_ns = 0
        for row in rows:
            part_ns = self._left_ns[row] if most_ns is None else min(self._left_ns[row], max(most_ns - taken_ns, 0))
            self._left_ns[row] -= part_ns
            taken_ns += part_ns
        return taken_ns


def _without_parts(finding: Finding, parts: Iterable[str]) -> Finding | None:
    """Return a finding on bubbles without parts that a stage or rank causes, of which another finding is.

    None if too few are left, or no more than is the least for the order of the actions.
    """
    numbers: dict[str, Any] = {**finding.evidence}
    total_ns = sum(numbers[part] for part in _PARTS_OF_BUBBLES)
    left_ns = total_ns - sum(numbers[part] for part in parts)
    ratio, least = numbers["bubble_ratio"] * left_ns / max(total_ns, 1), numbers["ideal_bubble_ratio"]
    is_less = least is not None and ratio < least  # than the order needs in a step that nothing makes longer
    if ratio < BUBBLE_RATIO or (is_less and not finding.saving_ns):
        return None
    left = {**dict.fromkeys(parts, 0), "bubble_ratio": ratio, "named_ratio": numbers["bubble_ratio"] - ratio}
    left["ideal_bubble_ratio"] = None if is_less else least
    return restated(finding, {**numbers, **left})


def _of_nobody(*causes: str) -> list[Row]:
    return [(cause, ()) for cause in causes]


def _with_behind(finding: Finding, behind_ns: int) -> dict[str, Any]:
    return {**finding.evidence, **({"behind_ns": behind_ns} if behind_ns else {})}


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
