"""Whether nothing stands out of a run, which takes a proof, or which part of the step no finding explains.

Without a finding all is clear only if every rank computes for most of its step, no cause of the step's time but compute
is notable, no rank is named, and the ranks' steps are equally long. Else the largest of these parts is said.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tracekit.explain.diagnosis.diagnosis import Diagnosis
from tracekit.explain.stragglers.stragglers import Stragglers
from tracekit.findings.claims import coverage
from tracekit.findings.finding import Finding
from tracekit.findings.hosts import idle_unexplained
from tracekit.findings.steps import no_complete_step, nothing_notable, ranks_without_times, unexplained_part
from tracekit.findings.thresholds import MOSTLY_COMPUTE, NOTABLE_SHARE
from tracekit.model.run import Run
from tracekit.model.summary import StepParts
from tracekit.model.table import rows_of
from tracekit.stats.grouped import grouped, summed

_PARTS = ("exposed_comm", "exposed_copy", "idle")
_UNCLEAR = 2.0  # times the largest cause: a part of single ranks that is no larger has these causes

_Part = tuple[float, str, float, tuple[int, ...]]
"""The share of the step, what it is, its time in ns, and whose it is; nobody's in particular if empty."""


def without_findings(run: Run, results: Mapping[str, Any]) -> Finding:
    """Return what is said of a run in which no analysis has a finding. results: by name of section."""
    steps = [step for of_rank in _steps(run).values() for step in of_rank]
    step_ns = sum(step.step_ns for step in steps)
    if not step_ns:
        return no_complete_step(evidence={})
    if lost := [summary for summary in run.ranks if summary.unmeasured is not None]:
        ranks = [summary.rank for summary in lost]
        return ranks_without_times(severity="info", evidence={"ranks": ranks, "reason": lost[0].unmeasured})
    found = results.get("stragglers")
    if isinstance(found, Stragglers) and found.verdict.certainty is not None:
        named = found.verdict
        part = (named.share_of_step, "late", float(named.caused_delay_ns), named.concerned)
        return _unexplained(
            run, part, late_by=named.cause, rank=named.rank, ranks=named.ranks, certainty=named.certainty
        )
    if (largest := _largest(run, results)) is not None:
        return _unexplained(run, largest)
    compute_ns = sum(step.compute_ns for step in steps)
    evidence = {"compute_ns": compute_ns // len(steps), "step_ns": step_ns // len(steps)}
    return nothing_notable(severity="info", evidence={"compute_share": compute_ns / step_ns, **evidence})


def unsaid_cause(run: Run, results: Mapping[str, Any], findings: Sequence[Finding]) -> list[Finding]:
    """Return a finding on the largest cause of the step beside work, if it is notable and no finding is about it."""
    largest = max(_causes(results), default=None, key=lambda part: part[0])
    if largest is None or not findings or any(finding.id == idle_unexplained.id for finding in findings):
        return []
    diagnosis = results["diagnosis"]
    unexplained_ns = coverage(diagnosis.step_ns, rows_of(diagnosis, "causes"), findings).unexplained_ns
    return [_unexplained(run, largest)] if largest[1] in unexplained_ns else []


def _unexplained(run: Run, largest: _Part, late_by: str | None = None, **fields: Any) -> Finding:
    share, part, time_ns, ranks = largest
    evidence = {"part": part, "of_ranks": list(ranks), "share": share, "late_by": late_by, "device": run.device}
    return unexplained_part(severity="info", time_ns=round(time_ns), evidence=evidence, **fields)


def _largest(run: Run, results: Mapping[str, Any]) -> _Part | None:
    """Return the largest notable cause or part; None if all is clear."""
    cause = max(_causes(results), default=None)
    other = max((*_of_ranks(run), *_longer_steps(run)), default=None)
    return cause if cause is not None and (other is None or other[0] <= _UNCLEAR * cause[0]) else other


def _causes(results: Mapping[str, Any]) -> Iterator[_Part]:
    """Yield the notable causes of the mean step, without compute."""
    diagnosis = results.get("diagnosis")
    if not isinstance(diagnosis, Diagnosis) or not diagnosis.step_ns:
        return
    rows = (((row["cause"], tuple(row["ranks"])), row["time_ns"]) for row in rows_of(diagnosis, "causes"))
    for (cause, ranks), time_ns in summed(rows).items():
        if cause != "compute" and time_ns >= NOTABLE_SHARE * diagnosis.step_ns:
            yield time_ns / diagnosis.step_ns, cause, time_ns, ranks


def _of_ranks(run: Run) -> Iterator[_Part]:
    """Yield what takes most of the step beside compute on the ranks that compute too little, in the mean of these."""
    few = []
    for rank, steps in _steps(run).items():
        step_ns, compute_ns = sum(step.step_ns for step in steps), sum(step.compute_ns for step in steps)
        time_ns, part = max((sum(getattr(step, f"{part}_ns") for step in steps), part) for part in _PARTS)
        if compute_ns < MOSTLY_COMPUTE * step_ns:
            few.append((part, (time_ns / step_ns, time_ns / len(steps), rank)))
    for part, of_part in grouped(few).items():
        shares, times_ns, ranks = zip(*of_part, strict=True)
        yield statistics.fmean(shares), part, statistics.fmean(times_ns), ranks


def _longer_steps(run: Run) -> Iterator[_Part]:
    """Yield by how much the steps of one rank are longer than those of another, if all are, and notably."""
    lengths_ns = {rank: [step.step_ns for step in steps] for rank, steps in _steps(run).items()}
    mean_ns = {rank: statistics.fmean(steps_ns) for rank, steps_ns in lengths_ns.items()}
    slow, fast = (choose(mean_ns, key=mean_ns.__getitem__) for choose in (max, min))
    longer_ns = mean_ns[slow] - mean_ns[fast]
    if min(lengths_ns[slow]) > max(lengths_ns[fast]) and longer_ns >= NOTABLE_SHARE * mean_ns[slow]:
        yield longer_ns / mean_ns[slow], "longer_steps", longer_ns, (slow,)


def _steps(run: Run) -> dict[int, list[StepParts]]:
    """Return the complete steps of each rank that has any."""
    steps = {summary.rank: [step for step in summary.steps if step.complete] for summary in run.ranks}
    return {rank: of_rank for rank, of_rank in steps.items() if of_rank}
