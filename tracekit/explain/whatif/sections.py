"""The section on what a change would save.

It decides which savings are worth a finding, and what to set so that FSDP keeps parameters where that pays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tracekit.explain.configuration import CONFIGURATION, value_of
from tracekit.explain.ddp.tables import BUCKET_REDUCTIONS, EARLY_REDUCTIONS
from tracekit.explain.fsdp.tables import FSDP_REGATHERS, FSDP_UNITS
from tracekit.explain.model_parallel.tables import EXPERT_EXCHANGES
from tracekit.explain.pipeline.bubbles import pipeline
from tracekit.explain.pipeline.sections import PIPELINE_SECTION
from tracekit.explain.pipeline.tables import ACTIONS
from tracekit.explain.pipeline.uneven_stage import UnevenStage
from tracekit.explain.section import AnalysisInput, Section, Unavailable
from tracekit.explain.step_time.step_rates import slow_rates_of_ranks
from tracekit.explain.step_time.tables import MEMORY_USE
from tracekit.explain.whatif import tables
from tracekit.explain.whatif.changes import Change
from tracekit.explain.whatif.launch_intervals import exchanges, interruptions, launch_intervals
from tracekit.explain.whatif.tables import EXCHANGES, INTERRUPTIONS, LAUNCH_INTERVALS, LaunchIntervals
from tracekit.explain.whatif.whatif import WhatIf, what_if_of_run
from tracekit.findings.finding import Finding
from tracekit.findings.fsdp import gathered_twice
from tracekit.findings.pipeline import uneven_stages
from tracekit.findings.stragglers import slow_peer
from tracekit.findings.thresholds import NOTABLE_SAVING, NOTABLE_SHARE
from tracekit.model.metadata import SettingValue
from tracekit.model.run import Run
from tracekit.rank.ready_times import rank_waits
from tracekit.rank.recorded_steps import WAITS, RecordedSteps

_FULL = 0.95  # of a device's memory: beyond, an allocation may fail
# Strategies of FSDP1 that gather again, with those that do not.
_SHARDING = {"FULL_SHARD": "SHARD_GRAD_OP", "HYBRID_SHARD": "_HYBRID_SHARD_ZERO2"}


def _intervals(recorded: RecordedSteps) -> LaunchIntervals:
    return launch_intervals(recorded, recorded.once(PIPELINE_SECTION.keeps[ACTIONS]))


def _analyze(given: AnalysisInput) -> WhatIf | Unavailable:

    result = what_if_of_run(given.run)
    if isinstance(result, Unavailable):
        return result
    found = given.once(pipeline) if PIPELINE_SECTION.name in given.wanted else None
    uneven = None if found is None or isinstance(found, Unavailable) else found.uneven_stage
    return replace(result, findings=tuple(whatif_findings(given.run, result, uneven)))


def whatif_findings(run: Run, result: WhatIf, uneven: UnevenStage | None = None) -> list[Finding]:
    """Return findings on uneven stages, on parameters gathered twice, and on a slow rank of a run without collectives.

    Where ranks meet in collectives, the section on stragglers names the slow rank. Elsewhere a rank is named only if a
    replay shows that others wait for it. Exposed communication has a section too. A rank of a pipeline has no peers,
    for its stage differs from theirs. Where nobody waits, a slow rank has a low rate.

    uneven: a stage that the section on pipelines has named; it gets no second finding.
    """
    stages = {summary.rank for summary in run.ranks if summary.pipeline is not None}
    named = frozenset(uneven.ranks if uneven is not None else ())
    notable = [change for change in result.changes if change.rank not in named]
    if uneven is not None:
        notable = [change for change in notable if change.remedy != "stages"]
    slow_rank = [change for change in notable if change.remedy == "ranks" and change.rank in result.waited_for]
    slow_rank = [change for change in slow_rank if change.rank not in stages][:1]
    slow_rank = [] if run.has_collectives else slow_rank
    kept = next((change for change in result.changes if change.remedy == "reshard"), None)
    findings = list(kept_parameters_findings(run, kept))
    if not (run.has_collectives or stages or result.waited_for):  # messages that nobody waits for
        findings += slow_rates_of_ranks(run)
    for change in [*slow_rank, *(change for change in notable if change.remedy == "stages")]:
        findings.append(
            (uneven_stages if change.rank is None else slow_peer)(
                severity="info" if change.rank is None else "warning",
                rank=change.rank,
                saving_ns=change.saves_ns_per_step,
                saving_error_ns=change.error_ns,
                evidence={"replay_error": result.replay_error},
                cause="imbalance" if change.rank is None else "slow_compute",
                remedy=change.remedy,
                ranks=change.ranks,
                conditions=[NOTABLE_SHARE.reached_by(change.share)],
            )
        )
    return findings


def kept_parameters_findings(run: Run, change: Change | None) -> Iterator[Finding]:
    """Yield the finding that gathers in the backward pass cost time that keeping the parameters saves.

    change: that of the replay without them; None where it saves nothing. There is no finding where the devices' memory
    would not suffice, as far as that is known.
    """
    if change is None:
        return
    memory_bytes = _kept_bytes(run)
    if not _fits(run, memory_bytes):
        return
    again = [row for s in run.ranks for row in s[FSDP_UNITS] if (row.kind, row.phase) == ("all_gather", "backward")]
    modules = {row.module for row in again if row.module is not None}
    steps = sum(step.complete for summary in run.ranks for step in summary.steps)
    option, wanted, present = _setting(run)
    yield gathered_twice(
        cause="transfer",
        time_ns=sum(row.exposed_ns for row in again) // max(steps, 1),
        saving_ns=change.saves_ns_per_step,
        saving_error_ns=change.error_ns,
        evidence={
            "modules": sorted(modules),
            "memory_bytes": memory_bytes,
            "option": option,
            "wanted": wanted,
            "present": present,
        },
        remedy="reshard",
        conditions=[NOTABLE_SAVING.reached_by(change.share)],
    )


def _setting(run: Run) -> tuple[str, str, SettingValue | None]:
    """Return what to set, to what, and what it is now; None where that is not known, or modules do not agree."""
    is_fsdp2 = "fsdp2" in run.strategies
    option = "reshard_after_forward" if is_fsdp2 else "sharding_strategy"
    now = value_of(run, "fsdp2" if is_fsdp2 else "fsdp1", option)
    wanted = "False" if is_fsdp2 else _SHARDING.get(str(now), _SHARDING["FULL_SHARD"])
    return option, wanted, None if isinstance(now, Unavailable) else now


def _kept_bytes(run: Run) -> int | None:
    """Return the bytes of parameters that a rank would keep, at most; None where sizes are not known."""
    of_ranks = []
    for summary in run.ranks:
        rows = [row for row in summary[FSDP_UNITS] if (row.kind, row.phase) == ("all_gather", "backward") and row.count]
        if any(row.size_bytes is None for row in rows):
            return None
        of_ranks.append(sum((row.size_bytes or 0) // row.count for row in rows))
    return max(of_ranks, default=None)


def _fits(run: Run, memory_bytes: int | None) -> bool:
    uses = [summary[MEMORY_USE] for summary in run.ranks]
    known = [(use.peak_bytes, use.device_bytes) for use in uses if use is not None]
    return not any(
        peak is not None and device is not None and peak + (memory_bytes or 0) > _FULL * device
        for peak, device in known
    )


WHATIF_SECTION: Section[WhatIf] = Section(
    name="whatif",
    analyze=_analyze,
    reads=(
        *(ACTIONS, BUCKET_REDUCTIONS, WAITS, INTERRUPTIONS, EXCHANGES, EXPERT_EXCHANGES, LAUNCH_INTERVALS),
        *(EARLY_REDUCTIONS, CONFIGURATION, FSDP_REGATHERS, FSDP_UNITS, MEMORY_USE),
    ),
    keeps={
        WAITS: lambda recorded: rank_waits(recorded.trace, recorded.lanes),
        INTERRUPTIONS: interruptions,
        EXCHANGES: exchanges,
        LAUNCH_INTERVALS: _intervals,
    },
    tables=(tables.WHATIF, tables.WHATIF_SLOWDOWNS, tables.WHATIF_REPLAY),
)
