"""Checks of verdicts: the culprit is named with its cause, and nobody else is."""

from __future__ import annotations

from benchmarks.studies.gpu_jobs.accusations import Accusation, accusations
from benchmarks.studies.gpu_jobs.evidence import Evidence
from benchmarks.studies.gpu_jobs.outcome import Check, Outcome, abstained, compare, right_if

_ROUNDED = 1.01  # times the step: replays differ from it
_SLIGHT = 0.02  # of a step: a defect that costs less need not be named

# What is planted: what a report may call it. A rank that computes longer because of its tokens has more work. Where a
# stage is one rank, more work makes the stage uneven.
_ALIKE = {
    "more_work": {"more_work", "uneven_stage"},
    "slow_host": {"compute", "slow_host"},
    "hot_expert": {"hot_expert", "more_work"},
    "uneven_stage": {"uneven_stage", "compute", "more_work"},
    "slow_edge": {"link", "slow_edge"},
}


def no_false_alarm(evidence: Evidence) -> Outcome | None:
    """Nobody is blamed in a healthy job."""
    if evidence.spec.defect is not None:
        return None
    blamed = accusations(evidence)
    return right_if(not blamed, "; ".join(f"{a.what} {a.ranks}: {a.text}" for a in blamed) or "nobody", "nobody")


def culprit(evidence: Evidence) -> Outcome | None:
    """The planted culprit is named: its rank, link, machine, stage or expert."""
    if evidence.spec.defect is None:
        return None
    expected = f"{evidence.spec.defect.cause} of {evidence.spec.defect.ranks}"
    blamed = accusations(evidence)
    if not blamed and _need_not_be_named(evidence):
        return None
    if not blamed:
        return abstained(expected, evidence.report.stragglers and evidence.report.stragglers.verdict.text)
    right = any(_is_culprit(evidence, accusation) for accusation in blamed)
    return right_if(right, "; ".join(f"{a.what} {a.ranks} ({a.cause}): {a.text}" for a in blamed), expected)


def nobody_else(evidence: Evidence) -> Outcome | None:
    """Nobody is blamed who has no part in the defect."""
    if evidence.spec.defect is None:
        return None
    others = [a for a in accusations(evidence) if not set(a.ranks) <= _concerned(evidence)]
    return right_if(
        not others,
        "; ".join(f"{a.what} {a.ranks}: {a.text}" for a in others) or "nobody else",
        f"nobody but {evidence.spec.defect.ranks}",
    )


def cause(evidence: Evidence) -> Outcome | None:
    """The culprit is named with the cause of its slowness."""
    if evidence.spec.defect is None:
        return None
    planted = evidence.spec.defect.cause
    named = [a for a in accusations(evidence) if _is_culprit(evidence, a)]
    if not named and _need_not_be_named(evidence):
        return None
    if not named:
        return abstained(planted, "the culprit is not named")
    causes = {a.cause for a in named} - {None}
    if not causes:
        return abstained(planted, "no cause is stated")
    return right_if(bool(causes & _ALIKE.get(planted, {planted})), causes, planted)


def delay_of_the_verdict(evidence: Evidence) -> Outcome | None:
    """The delay that the verdict states of a slow rank, where each step waits for all of it.

    What is planted may be more or less than what a step is longer by: a host that waits for its device also lets it run
    out of work.
    """
    defect = evidence.spec.defect
    if defect is None or len(defect.ranks) > 1 or evidence.spec.pp > 1 or defect.cause == "hot_expert":
        return None
    stragglers, bounds_ns = evidence.report.stragglers, sorted((defect.delay_us * 1000, evidence.truth.saving_ns))
    if stragglers is None or stragglers.verdict.rank != defect.ranks[0]:
        if _need_not_be_named(evidence):
            return None
        return abstained(f"{bounds_ns[1]:,.0f}", "the rank is not named")
    seen_ns = stragglers.verdict.caused_delay_ns
    expected_ns = min(max(seen_ns, bounds_ns[0]), bounds_ns[1])
    return compare(seen_ns, expected_ns, within=0.01 * evidence.truth.mean_step_ns, share=0.1)


def first_finding(evidence: Evidence) -> Outcome | None:
    """The first finding is about the planted culprit, where no other finding is about more than that costs."""
    defect, saving_ns = evidence.spec.defect, evidence.truth.saving_ns
    findings = [finding for finding in evidence.report.findings if finding.id != "noisy-steps"]
    if defect is None or _need_not_be_named(evidence):
        return None
    if evidence.spec.pp > 1 and defect.cause in {"more_work", "uneven_stage"}:
        return None  # an uneven stage is mended by sharing its work, which saves a part of what it costs
    about = [set(finding.concerned) == set(defect.ranks) for finding in findings]
    others = [finding for finding, is_planted in zip(findings, about, strict=True) if not is_planted]
    if any((f.time_ns or 0 if f.saving_ns is None else f.saving_ns) >= saving_ns for f in others):
        return None
    first = findings[0]
    return right_if(about[0], f"{first.id} {first.concerned}: {first.text}", f"{defect.cause} of {defect.ranks}")


def no_time_twice(evidence: Evidence) -> Outcome | None:
    """The times that findings are about are parts of one step, and so are their savings."""
    diagnosis = evidence.report.diagnosis
    if diagnosis is None or not diagnosis.step_ns:
        return None
    findings = evidence.report.findings
    behind_ns = [f.evidence.get("behind_ns", 0) for f in findings]
    time_ns = sum(f.time_ns or 0 for f in findings) + sum(each for each in behind_ns if isinstance(each, int))
    saving_ns = sum((f.saving_ns or 0) - (f.saving_error_ns or 0) for f in findings)
    limit_ns = round(_ROUNDED * diagnosis.step_ns)
    return right_if(max(time_ns, saving_ns) <= limit_ns, f"{time_ns:,} and {saving_ns:,}", f"{limit_ns:,} at most")


CHECKS: tuple[Check, ...] = (
    *(no_false_alarm, culprit, nobody_else, cause, delay_of_the_verdict),
    *(first_finding, no_time_twice),
)


def _is_culprit(evidence: Evidence, accusation: Accusation) -> bool:
    """Return whether an accusation names what is planted. A stage of one rank may be named as that rank."""
    defect = evidence.spec.defect
    assert defect is not None
    if defect.cause in {"link", "slow_edge"}:
        return accusation.what == "link" and accusation.ranks == defect.ranks
    if accusation.what == "link":
        return False
    return accusation.ranks == defect.ranks


def _need_not_be_named(evidence: Evidence) -> bool:
    """Return whether the defect costs so little that naming it is not worth a finding, or traces do not show it."""
    return evidence.truth.saving_ns < _SLIGHT * evidence.truth.mean_step_ns or evidence.edge_cannot_be_known


def _concerned(evidence: Evidence) -> set[int]:
    """Return the ranks of the defect."""
    defect = evidence.spec.defect
    return set() if defect is None else set(defect.ranks)
