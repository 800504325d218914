"""Whether nothing stands out of a run, which takes a proof, or which part of the step no finding explains.

Without a finding all is clear only if every rank computes for most of its step, no cause of the step's time but compute
is notable, no rank is named, and the ranks' steps are equally long. Else the largest of these parts is said.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tracekit.explain.diagnosis.diagnosis import Diagnosis
from tracekit.explain.stragglers.stragglers import Stragglers
from tracekit.findings.finding import Certainty, Finding
from tracekit.findings.steps import no_complete_step, nothing_notable, ranks_without_times, unexplained_part
from tracekit.findings.thresholds import CLEAR_ERRORS, MOSTLY_COMPUTE, NOTABLE_SHARE
from tracekit.model.run import Run
from tracekit.model.summary import StepParts
from tracekit.model.table import rows_of
from tracekit.stats.grouped import summed
from tracekit.stats.uncertainty import standard_error

_PARTS = ("exposed_comm", "exposed_copy", "idle")
_UNCLEAR = 2.0  # times the largest cause: a part of single ranks that is no larger has these causes


@dataclass(frozen=True, kw_only=True)
class _Part:
    """What takes time: a cause of the diagnosis, a part of the breakdown, "late" or "longer_steps".

    Attributes:
        ranks: whose it is; empty for all.
        cause: of what is late.
    """

    part: str
    time_ns: float
    share: float
    ranks: tuple[int, ...] = ()
    cause: str | None = None
    certainty: Certainty = "sure"


def without_findings(run: Run, results: Mapping[str, Any]) -> Finding:
    """Return what is said of a run in which no analysis has a finding. results: by name of section."""
    steps = [step for summary in run.ranks for step in summary.steps if step.complete]
    step_ns = sum(step.step_ns for step in steps)
    if not step_ns:
        return no_complete_step(evidence={})
    if lost := [summary for summary in run.ranks if summary.unmeasured is not None]:
        ranks = [summary.rank for summary in lost]
        return ranks_without_times(severity="info", evidence={"ranks": ranks, "reason": lost[0].unmeasured})
    part = next(_named(results), None) or _largest(run, results)
    if part is not None:
        is_named = part.part == "late"
        return unexplained_part(
            severity="info",
            certainty=part.certainty,
            time_ns=round(part.time_ns),
            rank=part.ranks[0] if is_named and len(part.ranks) == 1 else None,
            ranks=part.ranks if is_named else (),
            evidence={"part": part.part, "of_ranks": list(part.ranks), "share": part.share, "late_by": part.cause},
        )
    compute_ns = sum(step.compute_ns for step in steps)
    evidence = {
        "compute_share": compute_ns / step_ns,
        "compute_ns": compute_ns // len(steps),
        "step_ns": step_ns // len(steps),
    }
    return nothing_notable(severity="info", evidence=evidence)


def _named(results: Mapping[str, Any]) -> Iterator[_Part]:
    """Yield the delay of whom the verdict names, though nobody is seen to wait for them."""
    found = results.get("stragglers")
    if isinstance(found, Stragglers) and found.verdict.certainty is not None:
        verdict, certainty = found.verdict, found.verdict.certainty
        yield _Part(
            part="late",
            time_ns=verdict.caused_delay_ns,
            share=verdict.share_of_step,
            ranks=verdict.concerned,
            cause=verdict.cause,
            certainty=certainty,
        )


def _largest(run: Run, results: Mapping[str, Any]) -> _Part | None:
    """Return the largest notable cause or part; None if all is clear."""
    causes = max(_causes(results), key=lambda part: part.share, default=None)
    others = max((*_of_ranks(run), *_longer_steps(run)), key=lambda part: part.share, default=None)
    if causes is not None and (others is None or others.share <= _UNCLEAR * causes.share):
        return causes
    return others


def _causes(results: Mapping[str, Any]) -> Iterator[_Part]:
    """Yield the notable causes of the mean step, without compute."""
    diagnosis = results.get("diagnosis")
    if not isinstance(diagnosis, Diagnosis) or not diagnosis.step_ns:
        return
    rows = ((row["cause"], tuple(row["ranks"]), row["time_ns"]) for row in rows_of(diagnosis, "causes"))
    for (cause, ranks), time_ns in summed(((cause, ranks), time_ns) for cause, ranks, time_ns in rows).items():
        share = time_ns / diagnosis.step_ns
        if cause != "compute" and share >= NOTABLE_SHARE:
            yield _Part(part=cause, time_ns=time_ns, share=share, ranks=ranks)


def _of_ranks(run: Run) -> Iterator[_Part]:
    """Yield what takes most of the step beside compute on the ranks that compute too little."""
    for name in _PARTS:
        times_ns = {}
        for rank, steps in _steps(run).items():
            sums_ns = {part: sum(getattr(step, f"{part}_ns") for step in steps) for part in _PARTS}
            step_ns = sum(step.step_ns for step in steps)
            if sum(sums_ns.values()) > (1 - MOSTLY_COMPUTE) * step_ns and max(sums_ns, key=sums_ns.__getitem__) == name:
                times_ns[rank] = (sums_ns[name] / len(steps), sums_ns[name] / step_ns)
        if times_ns:
            time_ns, share = (statistics.fmean(values) for values in zip(*times_ns.values(), strict=True))
            yield _Part(part=name, time_ns=time_ns, share=share, ranks=tuple(times_ns))


def _longer_steps(run: Run) -> Iterator[_Part]:
    """Yield by how much the steps of one rank are longer than those of another, if that is notable and no noise."""
    lengths_ns = {rank: [step.step_ns for step in steps] for rank, steps in _steps(run).items()}
    mean_ns = {rank: statistics.fmean(steps_ns) for rank, steps_ns in lengths_ns.items()}
    slow, fast = (choose(mean_ns, key=mean_ns.__getitem__) for choose in (max, min))
    longer_ns = mean_ns[slow] - mean_ns[fast]
    error_ns = math.hypot(standard_error(lengths_ns[slow]), standard_error(lengths_ns[fast]))
    if longer_ns >= max(NOTABLE_SHARE * mean_ns[slow], CLEAR_ERRORS * error_ns, 1):
        yield _Part(part="longer_steps", time_ns=longer_ns, share=longer_ns / mean_ns[slow], ranks=(slow,))


def _steps(run: Run) -> dict[int, list[StepParts]]:
    """Return the complete steps of each rank that has any."""
    steps = {summary.rank: [step for step in summary.steps if step.complete] for summary in run.ranks}
    return {rank: of_rank for rank, of_rank in steps.items() if of_rank}
