"""Checks of savings: what a report says that a remedy saves, against the same job simulated with that remedy."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.gpu_jobs import JobSpec, simulate
from benchmarks.studies.gpu_jobs.accusations import accusations
from benchmarks.studies.gpu_jobs.evidence import Evidence
from benchmarks.studies.gpu_jobs.outcome import Check, Outcome, abstained, compare, compare_each
from tracekit.explain.whatif.candidates import BALANCED_STAGES
from tracekit.explain.whatif.changes import Change

_SHARE, _OF_STEP = 0.1, 0.01  # a saving may be off by a tenth, or by a hundredth of the step if that is more
_SHARE_OF_OTHER_PROGRAM = 0.15
_NO_TIME_US = 0.001
_LATENCY_NS = 10_000  # of a launch and two events
_OF_TRANSFERS = ("link", "slow_edge")  # defects that transfers without time do not have


def saving_of_finding(evidence: Evidence) -> Outcome | None:
    """What the findings on the culprit say that a step would be shorter by: each of them, if there are several."""
    defect = evidence.spec.defect
    if defect is None:
        return None
    stated = [a for a in accusations(evidence) if set(a.ranks) == set(defect.ranks) and a.saving_ns is not None]
    if not stated and (_is_little(evidence) or evidence.edge_cannot_be_known):
        return None
    if not stated:
        return abstained(f"{evidence.truth.saving_ns:,.0f}", "no finding on the culprit states a saving")
    expected, seen = {}, {}
    for number, a in enumerate(stated):
        key = f"finding {number} on {a.what} {a.ranks} ({a.cause})"
        moves_layers = a.change == BALANCED_STAGES
        expected[key] = _saving_of_balance_ns(evidence) if moves_layers else evidence.truth.saving_ns
        seen[key] = float(a.saving_ns or 0)
    return compare_each(seen, expected, within=_OF_STEP * evidence.truth.mean_step_ns, share=_SHARE)


def saving_of_whatif(evidence: Evidence) -> Outcome | None:
    """What the replay says that the remedy of the defect saves. No saving is as good as none where there is little."""
    defect = evidence.spec.defect
    if defect is None:
        return None
    whatif = evidence.report.whatif
    if whatif is None:
        return abstained(f"{evidence.truth.saving_ns:,.0f}", evidence.report.unavailable.get("whatif"))
    changes = [change for change in whatif.changes if _remedies(evidence, change)]
    if defect.cause == "hot_expert":  # to let its rank compute as long as others leaves its exchanges as they are
        changes = [change for change in changes if change.remedy == "load"] or changes
    if not changes and evidence.edge_cannot_be_known:
        return None
    if not changes and not _is_little(evidence):
        changed = [change.what for change in whatif.changes]
        return abstained(f"{evidence.truth.saving_ns:,.0f}", f"no such change among {changed}")
    expected = {
        c.what: _saving_of_balance_ns(evidence) if c.what == BALANCED_STAGES else evidence.truth.saving_ns
        for c in changes
    }
    seen = {c.what: float(c.saves_ns_per_step) for c in changes}
    return compare_each(seen, expected, within=_OF_STEP * evidence.truth.mean_step_ns, share=_SHARE)


def healthy_whatif(evidence: Evidence) -> Outcome | None:
    """No change of a single rank, link or stage of a healthy job saves as much as 3 % of a step."""
    whatif = evidence.report.whatif if evidence.spec.defect is None else None
    if whatif is None:
        return None
    changes = [c for c in whatif.changes if _ranks_of(c) or c.what == BALANCED_STAGES]
    seen = {change.what: float(change.saves_ns_per_step) for change in changes}
    return compare_each(seen, dict.fromkeys(seen, 0.0), within=0.03 * evidence.truth.mean_step_ns)


def other_pipelines(evidence: Evidence) -> Outcome | None:
    """What other numbers of microbatches and other schedules save in a healthy job, against a simulation of them.

    A program that never ran is predicted: the saving may be off by 15 %, or by the error that is stated of it.
    Transfers take as long as before, which the analysis assumes too.
    """
    pipeline = evidence.report.pipeline if evidence.spec.pp > 1 and evidence.spec.defect is None else None
    if pipeline is None:
        return None
    expected = {}
    for change in pipeline.changes:
        other = _other_pipeline(evidence.spec, change.what)
        if other is not None:
            expected[change.what] = evidence.truth.mean_step_ns - simulate(other).truth.mean_step_ns
    seen = {c.what: float(c.saves_ns_per_step) for c in pipeline.changes if c.what in expected}
    if not expected:
        return None
    within = {c.what: max(_OF_STEP * evidence.truth.mean_step_ns, c.error_ns) for c in pipeline.changes}
    return compare_each(seen, expected, within=within, share=_SHARE_OF_OTHER_PROGRAM)


def saving_of_free_communication(evidence: Evidence) -> Outcome | None:
    """What communication that takes no time is said to save, against a simulation whose transfers take none.

    A transfer that takes no time still waits for its launch and for events, which one that is left out does not. If
    clocks jump, a step of the trace is longer than it was.
    """
    whatif = None if any(evidence.spec.clocks.jump_us) else evidence.report.whatif
    stated = [] if whatif is None else [change for change in whatif.changes if change.remedy == "network"]
    if not stated:
        return None
    free = replace(evidence.spec, gradient_us=_NO_TIME_US, exchange_us=_NO_TIME_US, message_us=_NO_TIME_US)
    if free.defect is not None and free.defect.cause in _OF_TRANSFERS:
        free = replace(free, defect=None)
    expected_ns = evidence.truth.mean_step_ns - simulate(free).truth.mean_step_ns
    operations = sum(0 in op.members for op in evidence.truth.operations) / evidence.spec.steps
    within_ns = max(_OF_STEP * evidence.truth.mean_step_ns, _LATENCY_NS * operations)
    return compare(stated[0].saves_ns_per_step, expected_ns, within=within_ns, share=_SHARE)


CHECKS: tuple[Check, ...] = (
    saving_of_finding,
    saving_of_whatif,
    healthy_whatif,
    other_pipelines,
    saving_of_free_communication,
)


def _is_little(evidence: Evidence) -> bool:
    """Return whether the defect costs so little that no saving need be stated."""
    return evidence.truth.saving_ns <= 2 * _OF_STEP * evidence.truth.mean_step_ns


def _saving_of_balance_ns(evidence: Evidence) -> float:
    """Return what it saves to spread the additional work of the slow ranks over all ranks: layers move, none goes."""
    spec, defect = evidence.spec, evidence.spec.defect
    assert defect is not None
    more = defect.delay_us * len(defect.ranks) / (spec.compute_us * spec.ranks)
    balanced = replace(spec, defect=None, layer_us=spec.layer_us * (1 + more))
    return evidence.truth.mean_step_ns - simulate(balanced).truth.mean_step_ns


def _remedies(evidence: Evidence, change: Change) -> bool:
    """Return whether a change of the what-if mends the planted defect."""
    defect = evidence.spec.defect
    assert defect is not None
    if set(_ranks_of(change)) == set(defect.ranks):
        return True
    return defect.cause == "uneven_stage" and change.what == BALANCED_STAGES


def _ranks_of(change: Change) -> tuple[int, ...]:
    """Return the ranks that a change of the what-if is about."""
    several = change.ranks
    return several or (() if change.rank is None else (change.rank,))


def _other_pipeline(spec: JobSpec, what: str) -> JobSpec | None:
    """Return the job that a change of a pipeline makes; None if it cannot be simulated."""
    if "microbatches of half the size" in what:
        return replace(spec, microbatches=2 * spec.microbatches, layer_us=spec.layer_us / 2)
    if "interleaved schedule" in what and spec.layers % (2 * spec.pp) == 0:
        return replace(spec, schedule="interleaved", virtual_stages=2)
    return None
