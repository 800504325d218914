"""Which gates a run passes.

A limit of a change is tested against the change's interval: the gate passes where the whole interval keeps to the
limit, fails where none of it does, and is inconclusive between. A gate that can neither pass nor fail counts as failed
unless its kind of doubt is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Literal

import numpy as np

from tracekit.comparison.comparability import why_ranks_lack
from tracekit.comparison.comparison import Comparison, compare
from tracekit.comparison.step_verdict import ChangeEstimate, estimate_change, steps_to_tell_apart
from tracekit.errors import InputError, UsageError
from tracekit.explain.section import Unavailable
from tracekit.gates.gates import Doubt, Gate, Gates
from tracekit.model.run import Run, format_ranges
from tracekit.report.report import Report
from tracekit.stats.uncertainty import pseudomedian

Status = Literal["passed", "failed"] | Doubt

_LEAST_SHARE = 1e-6  # of the typical value; a step without any of a metric counts as having so much: ratios need some


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """What became of a gate.

    Attributes:
        allowed: whether it passes though it is in doubt.
        value: of the run, in the metric's unit; None if it is not known.
        baseline: the same of the baseline; None for a limit of the value itself, or if it is not known.
        change: of a limit of the change, with its interval; None where the metric is one number a run.
        reason: why the gate is in doubt.
        steps_needed: of an inconclusive gate, about how many steps in each run would decide; None if that is not known.
    """

    gate: Gate
    status: Status
    allowed: bool = False
    value: float | None = None
    baseline: float | None = None
    change: ChangeEstimate | None = None
    reason: str | None = None
    steps_needed: int | None = None

    @property
    def name(self) -> str:
        return self.gate.name

    @property
    def passes(self) -> bool:
        return self.status == "passed" or self.allowed

    @property
    def change_share(self) -> float | None:
        """Return the change as a share of the baseline; None if it is not known."""
        if self.change is not None:
            return self.change.ratio - 1
        return self.value / self.baseline - 1 if self.value is not None and self.baseline else None


@dataclass(frozen=True, kw_only=True)
class FindingResult:
    """Whether a run has a finding that it may not have.

    Attributes:
        texts: of the findings with this id.
        allowed: whether it passes all the same.
        ignored_until: the day until whose end it is ignored.
        reason: why it is in doubt, or allowed.
    """

    id: str
    status: Status
    texts: tuple[str, ...] = ()
    allowed: bool = False
    ignored_until: date | None = None
    reason: str | None = None

    @property
    def name(self) -> str:
        return f"findings.{self.id}"

    @property
    def passes(self) -> bool:
        return self.status == "passed" or self.allowed


@dataclass(frozen=True, kw_only=True)
class Check:
    """The results of all gates of a run.

    Attributes:
        findings: the results of gates on findings.
        comparison: with the baseline, if there is one of the same job.
    """

    run: Run
    gates: Gates
    results: tuple[GateResult, ...]
    findings: tuple[FindingResult, ...] = ()
    comparison: Comparison | None = None

    @property
    def all_results(self) -> tuple[GateResult | FindingResult, ...]:
        return (*self.results, *self.findings)

    @property
    def passes(self) -> bool:
        return all(result.passes for result in self.all_results)


def require_baseline(gates: Gates, baselines: int) -> None:
    """Raise UsageError for a gate against a baseline where there is none."""
    relative = [gate.name for gate in gates.gates if gate.is_relative]
    if relative and not baselines:
        need = f"need{'s' * (len(relative) == 1)} a baseline"
        raise UsageError(f"{gates.source}: {', '.join(relative)} {need}", hint="give --baseline RUN")


def check(gates: Gates, report: Report, baselines: Sequence[Report] = ()) -> Check:
    """Return which gates a run passes. Reports have the sections that `Gates.sections` names, and with a baseline those
    of a comparison.

    Raises what `require_baseline` raises.
    """
    require_baseline(gates, len(baselines))
    comparison, incomparable = None, None
    if baselines:
        try:
            comparison = compare(baselines, report, run_noise=gates.run_noise)
        except InputError as error:
            incomparable = error.message
    results = [_evaluate(gate, gates, report, baselines, incomparable) for gate in gates.gates]
    findings = tuple(_evaluate_finding(finding_id, gates, report) for finding_id in gates.fail_on)
    return Check(run=report.run, gates=gates, results=tuple(results), findings=findings, comparison=comparison)


def _evaluate_finding(finding_id: str, gates: Gates, report: Report) -> FindingResult:
    texts = tuple(finding.text for finding in report.findings if finding.id == finding_id)
    lacking = None if "incomplete" in gates.allow else _lacking_ranks(report.run)
    if not texts:
        return FindingResult(id=finding_id, status="incomplete" if lacking else "passed", reason=lacking)
    until = gates.ignore.get(finding_id)
    if until is None or datetime.now(tz=UTC).date() > until:
        reason = None if until is None else f"it was ignored until {until}"
        return FindingResult(id=finding_id, status="failed", texts=texts, ignored_until=until, reason=reason)
    reason = f"ignored until {until}"
    return FindingResult(id=finding_id, status="failed", texts=texts, allowed=True, ignored_until=until, reason=reason)


def _evaluate(
    gate: Gate, gates: Gates, report: Report, baselines: Sequence[Report], incomparable: str | None
) -> GateResult:
    def doubt(kind: Doubt, reason: str, value: float | None = None) -> GateResult:
        return GateResult(gate=gate, status=kind, allowed=kind in gates.allow, value=value, reason=reason)

    if "incomplete" not in gates.allow and (lacking := _lacking_ranks(report.run)):
        return doubt("incomplete", lacking)
    value = gate.metric.value(report)
    if isinstance(value, Unavailable):
        return doubt("unavailable", value.reason)
    if not gate.is_relative:
        passed = value <= gate.limit if gate.kind == "max" else value >= gate.limit
        return GateResult(gate=gate, status="passed" if passed else "failed", value=value)
    if incomparable is not None:
        return doubt("incomparable", incomparable, value)
    of_baselines = [gate.metric.value(baseline) for baseline in baselines]
    known = [each for each in of_baselines if not isinstance(each, Unavailable)]
    if len(known) < len(of_baselines):
        reason = next(each.reason for each in of_baselines if isinstance(each, Unavailable))
        return doubt("unavailable", f"of the baseline: {reason}", value)
    return _evaluate_change(gate, gates, report, baselines, value, known)


def _lacking_ranks(run: Run) -> str | None:
    lacking = [*run.missing_ranks, *(s.rank for s in run.ranks if s.unmeasured is not None)]
    if not lacking:
        return None
    ranks = f"rank {format_ranges(lacking)} is" if len(lacking) == 1 else f"ranks {format_ranges(lacking)} are"
    return f"{ranks} missing or cannot be used{why_ranks_lack(run)}"


def _evaluate_change(
    gate: Gate, gates: Gates, report: Report, baselines: Sequence[Report], value: float, known: Sequence[float]
) -> GateResult:
    by_step = gate.metric.by_step
    samples = [] if by_step is None else [by_step(each) for each in (*baselines, report)]
    typical = [pseudomedian(sample) for sample in samples]
    if not samples or min(typical) <= 0:
        return _evaluate_numbers(gate, gates, value, sum(known) / len(known))
    positive = [np.maximum(sample, _LEAST_SHARE * each) for sample, each in zip(samples, typical, strict=True)]
    change = estimate_change(positive[:-1], positive[-1], run_noise=gates.run_noise)
    edge = 1 + gate.limit if gate.kind == "max_increase" else 1 - gate.limit
    status = _status(gate, change, edge)
    result = GateResult(gate=gate, status=status, value=change.candidate, baseline=change.baseline, change=change)
    if status != "inconclusive":
        return result
    return replace(
        result,
        allowed=status in gates.allow,
        reason="the limit lies within the noise",
        steps_needed=steps_to_tell_apart(change, math.log(edge)) if edge > 0 else None,
    )


def _status(gate: Gate, change: ChangeEstimate, edge: float) -> Status:
    """Return whether the interval of a change lies on one side of `edge`, the ratio that the gate allows."""
    if change.low is None or change.high is None:
        return "inconclusive"
    if gate.kind == "max_increase":
        return "passed" if change.high <= edge else "failed" if change.low > edge else "inconclusive"
    return "passed" if change.low >= edge else "failed" if change.high < edge else "inconclusive"


def _evaluate_numbers(gate: Gate, gates: Gates, value: float, baseline: float) -> GateResult:
    """Return the result where each run has one number, without a noise that is known."""
    found = GateResult(gate=gate, status="passed", value=value, baseline=baseline)
    if not baseline and value:
        reason = "the baseline is 0, so that there is no relative change"
        return replace(found, status="incomparable", allowed="incomparable" in gates.allow, reason=reason)
    share = value / baseline - 1 if baseline else 0.0
    passed = share <= gate.limit if gate.kind == "max_increase" else share >= -gate.limit
    return found if passed else replace(found, status="failed")
