"""What a report blames: each rank, link, host, stage or expert that it names as the cause of lost time.

The checks of verdicts and of savings read this list. Whoever adds a finding that blames somebody adds it here.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.studies.gpu_jobs.evidence import Evidence
from tracekit.findings.finding import Finding


@dataclass(frozen=True)
class Accusation:
    """Who or what is blamed.

    Attributes:
        what: rank, ranks, link, host, stage or expert.
        ranks: the ranks that it concerns, ascending.
        cause: as the report names it, if it does.
        stage: of a pipeline.
        saving_ns: what the report says that a remedy would save a step.
        change: that remedy, as the what-if calls it.
    """

    what: str
    ranks: tuple[int, ...]
    text: str
    cause: str | None = None
    stage: int | None = None
    saving_ns: int | None = None
    change: str | None = None


def accusations(evidence: Evidence) -> list[Accusation]:
    """Return what the verdict on stragglers and the findings blame, each once."""
    found = [*_of_verdict(evidence), *_of_pipeline(evidence)]
    known = {accusation.text for accusation in found}
    found += [
        accusation
        for finding in evidence.report.findings
        if finding.text not in known and (accusation := _of_finding(evidence, finding)) is not None
    ]
    return found


def _of_verdict(evidence: Evidence) -> list[Accusation]:
    stragglers = evidence.report.stragglers
    if stragglers is None:
        return []
    verdict = stragglers.verdict
    saving_ns, change = next(((f.saving_ns, _change_of(f)) for f in stragglers.findings), (None, None))
    text = next((finding.text for finding in stragglers.findings), verdict.text)
    if several := verdict.ranks:
        return [Accusation("ranks", several, text, verdict.cause, saving_ns=saving_ns, change=change)]
    if verdict.link is not None:
        return [Accusation("link", tuple(sorted(verdict.link.ranks)), text, "link", saving_ns=saving_ns, change=change)]
    if verdict.rank is not None:
        return [Accusation("rank", (verdict.rank,), text, verdict.cause, saving_ns=saving_ns, change=change)]
    return []


def _of_pipeline(evidence: Evidence) -> list[Accusation]:
    pipeline = evidence.report.pipeline
    if pipeline is None or pipeline.uneven_stage is None:
        return []
    uneven = pipeline.uneven_stage
    finding = next((f for f in pipeline.findings if f.evidence.get("stage") == uneven.stage), None)
    text = f"stage {uneven.stage} is uneven" if finding is None else finding.text
    saving_ns, change = (None, None) if finding is None else (finding.saving_ns, _change_of(finding))
    return [Accusation("stage", tuple(uneven.ranks), text, "uneven_stage", uneven.stage, saving_ns, change)]


def _of_finding(evidence: Evidence, finding: Finding) -> Accusation | None:
    if finding.evidence.get("host") is not None:
        ranks = _ranks_of_host(evidence, finding.evidence["host"])
        return Accusation("host", ranks, finding.text, saving_ns=finding.saving_ns, change=_change_of(finding))
    if finding.rank is None:
        return None
    tensor = evidence.report.tensor
    is_expert = tensor is not None and finding in tensor.findings and "ratio" in finding.evidence
    cause = "hot_expert" if is_expert else None
    what = "expert" if is_expert else "rank"
    return Accusation(what, (finding.rank,), finding.text, cause, None, finding.saving_ns, _change_of(finding))


def _change_of(finding: Finding) -> str | None:
    change = finding.evidence.get("change")
    return None if change is None else str(change)


def _ranks_of_host(evidence: Evidence, host: object) -> tuple[int, ...]:
    return tuple(s.rank for s in evidence.run.ranks if host in {s.host, s.machine})
