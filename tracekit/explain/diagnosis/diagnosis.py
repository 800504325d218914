"""Where the time of the mean step goes, and what of it is worth a finding.

Every instant of the chain that bounds the steps has one cause, so that causes sum to the step exactly:

* `transfer`: communication is on its way, and the last rank has come. A message of a pipeline counts with the time of
  the fastest of its size between its ranks. What it takes beyond that the network did not cause: it is `late_peer`.
* `slow_compute`, `slow_more_work`, `slow_host`, `slow_data`, `slow_link`, and `slow_checkpoint`, `slow_evaluation`,
  `slow_logging`: what named ranks, or a named link, take beyond the others. The others see it as waiting. Of a late
  host the cause is what it does, such as `slow_allocator`. That may hit another rank in each step: it names none then.
* `variation`: what any other rank took beyond its peers in one collective or another.
* `warmup`, `drain`, `imbalance`, `late_peer`: what a pipeline's ranks wait for. While a stage works, those before and
  behind it may have nothing to do. So the chain computes longer than its ranks do. The difference is divided as the
  bubbles are.
* `compute`, `copy`, and the causes of idle time (`IDLE_CAUSES`): what is left.

What one rank did is divided into phases, and each interval of a phase into activities (`phase_activities`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import numpy as np

from tracekit.explain.communication.overlap import exposed_findings
from tracekit.explain.communication.tables import COMMUNICATION_SUMS
from tracekit.explain.diagnosis import tables
from tracekit.explain.diagnosis.critical_path import CriticalPath, PathInterval, critical_path
from tracekit.explain.diagnosis.tables import ACTIVITIES, PHASE_ACTIVITIES, PhaseActivities
from tracekit.explain.fsdp.units import gathers_block
from tracekit.explain.pauses.tables import PAUSE_TIMES
from tracekit.explain.pipeline.bubbles import Pipeline, pipeline
from tracekit.explain.section import AnalysisInput, Section, Unavailable
from tracekit.explain.step_time.breakdown import blocking_evidence
from tracekit.explain.step_time.phases import recorded_phase_times
from tracekit.explain.step_time.step_rates import INDEPENDENT
from tracekit.explain.stragglers.arrivals import Arrivals
from tracekit.explain.stragglers.collective_instances import CollectiveInstances
from tracekit.explain.stragglers.host_causes import BY_TURNS, time_by_turns_ns
from tracekit.explain.stragglers.some_steps import steps_without_work
from tracekit.explain.stragglers.stragglers import STRAGGLERS_SECTION, arrivals
from tracekit.explain.stragglers.verdict import Verdict
from tracekit.findings.communication import cause_by_turns, exposed_transfers, late_at_times, late_by_turns
from tracekit.findings.finding import Finding, Remedy
from tracekit.findings.thresholds import NOTABLE_SHARE
from tracekit.job.message_times import fastest_messages
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import Run
from tracekit.model.table import Frame
from tracekit.rank.idle_causes import idle_by_cause
from tracekit.rank.pauses import PAUSES
from tracekit.rank.recorded_steps import STEP_ENDS, WAITS, RecordedSteps
from tracekit.rank.segments import computing_or_loading, step_end_segments
from tracekit.replay.operation_graph import NO_TRAINING
from tracekit.stats.apportion import apportion

K = TypeVar("K")

_HOST = tuple(cause for cause in ACTIVITIES if cause not in {"compute", "data"})
_WORK = {"compute": ("compute",), "more_work": ("compute",), "data": ("data",), "host": _HOST}
_WORK |= {cause: (cause,) for cause in ACTIVITIES if cause not in _WORK} | {"operators": _HOST}
_WORK |= {"checkpoint": ("checkpoint",), "evaluation": ("compute",), "logging": ("logging",)}
_MOST = 0.5  # of the variation between ranks, by a cause that hits them by turns
_MOST_BY_ONE = 2 / 3  # of the lateness: with more ranks do not take turns
_SEVERAL_STEPS = 2  # with notable lateness: in one no turns are seen
_BUBBLES = ("warmup", "drain", "imbalance", "late_peer")


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The mean step by cause.

    Attributes:
        step_ns: the mean step, from the last rank's begin to the last rank's end.
        steps: how many steps it is the mean of.
        causes: rows of tables.CAUSES, the longest first; their times sum to `step_ns`.
        findings: on transfers, and on ranks that are late by turns.
    """

    step_ns: int
    steps: int
    causes: Frame = Frame(tables.CAUSES)
    findings: tuple[Finding, ...] = ()


def diagnose(
    run: Run, arrivals: Arrivals, path: CriticalPath, verdict: Verdict, pipeline: Pipeline | None
) -> Diagnosis:
    """Return the causes of the mean step of a run, and findings on those that no other section reports on.

    Without chains, or with one rank alone, waiting for others cannot be told from transfers.
    """
    step_ns, causes = step_causes(run, arrivals, path, verdict, pipeline)
    if not path.steps or sum(summary.is_measured for summary in run.ranks) < 2:
        findings = exposed_findings(run)
    else:
        findings = [
            *_transfers(run, causes, step_ns),
            *_by_turns(causes, step_ns),
            *_variation(run, arrivals, path, verdict, causes, step_ns),
        ]
    return Diagnosis(
        step_ns=step_ns,
        steps=path.steps,
        causes=[tables.CAUSES.row(cause, time_ns=time_ns) for cause, time_ns in causes.items()],
        findings=tuple(findings),
    )


def _transfers(run: Run, causes: Mapping[StepCause, int], step_ns: int) -> Iterator[Finding]:
    """Yield a finding if the chain that bounds the step consists of transfers to a notable share.

    A chain of transfers may run beside compute, which hides it. So no more counts than the ranks' exposed time.
    Transfers of checkpoints and evaluations do not count: the findings on these pauses contain them.
    """
    in_training = {cause: time_ns for cause, time_ns in causes.items() if cause.phase not in PAUSES}
    transfers = {cause: time_ns for cause, time_ns in in_training.items() if cause.cause == "transfer"}
    on_path_ns = sum(transfers.values())
    time_ns = min(on_path_ns, _exposed_ns(run))
    if not transfers:
        return
    largest = max(transfers, key=lambda cause: transfers[cause])
    yield exposed_transfers(
        cause="transfer",
        time_ns=time_ns,
        evidence={
            "transfer_ns": on_path_ns,
            "exposed_ns": time_ns,
            "share": time_ns / max(step_ns, 1),
            "unseen": bool(run.missing_ranks) or any(summary.unmeasured is not None for summary in run.ranks),
            "kind": largest.kind,
            "group": largest.group,
            "phase": None if largest.phase == "other" else largest.phase,
            **blocking_evidence(run),
        },
        remedy="network" if gathers_block(run) or largest.kind == "barrier" else "communication",
        conditions=[NOTABLE_SHARE.reached_by(time_ns / max(step_ns, 1))],
    )


def _exposed_ns(run: Run) -> int:
    """Return the exposed communication of a step, mean over the ranks and the steps that all completed."""
    common = run.common_steps()
    exposed_ns = [s.exposed_comm_ns for summary in run.ranks for s in summary.steps if s.step in common]
    return sum(exposed_ns) // max(len(exposed_ns), 1)


def _by_turns(causes: Mapping[StepCause, int], step_ns: int) -> Iterator[Finding]:
    """Yield a finding on each cause that hits another rank in each step."""
    for name in BY_TURNS:
        time_ns = causes.get(StepCause(cause=f"slow_{name}"), 0)
        if time_ns:
            yield cause_by_turns(
                cause=name,
                time_ns=time_ns,
                evidence={"share": time_ns / max(step_ns, 1)},
                remedy=cast(Remedy, name) if name in NO_TRAINING else None,
                conditions=[NOTABLE_SHARE.reached_by(time_ns / max(step_ns, 1))],
            )


def _variation(
    run: Run, arrivals: Arrivals, path: CriticalPath, verdict: Verdict, causes: Mapping[StepCause, int], step_ns: int
) -> Iterator[Finding]:
    """Yield a finding if waiting for whichever rank comes last takes a notable share of the step.

    Ranks take turns if that is so in several steps, and none of them has most of it. What a rank that is named is late
    by is its own delay.
    """
    late_ns = {interval.step: Counter[int]() for interval in path.intervals}
    for interval in path.intervals:
        if not interval.is_transfer and interval.rank not in verdict.concerned:
            late_ns[interval.step][interval.rank] += _split(run, arrivals, interval)[0]
    by_rank = sum(late_ns.values(), Counter[int]())
    time_ns = min(causes.get(StepCause(cause="variation"), 0), by_rank.total() // max(len(late_ns), 1))
    share = time_ns / max(step_ns, 1)
    most = max(by_rank.values(), default=0) / max(by_rank.total(), 1)
    late = [of_step for of_step in late_ns.values() if of_step.total() >= NOTABLE_SHARE * step_ns]
    last = Counter(of_step.most_common(1)[0][0] for of_step in late).most_common(1)
    last_rank, last_in = last[0] if last else (None, 0)
    by_turns = len(late) >= _SEVERAL_STEPS and most <= _MOST_BY_ONE
    yield (late_by_turns if by_turns else late_at_times)(
        severity="info",
        cause="variation",
        time_ns=time_ns,
        evidence={
            "variation_ns": time_ns,
            "share": share,
            "steps": len(late_ns),
            "late_steps": len(late),
            "most_by_one": most,
            "last_rank": last_rank,
            "last_in": last_in,
            "no_replay": "no change of one rank or link removes it",
        },
        conditions=[NOTABLE_SHARE.reached_by(share)],
    )


@dataclass(frozen=True, kw_only=True)
class StepCause:
    """A cause of the step's time.

    Attributes:
        cause: as the module's documentation says.
        ranks: those that are the cause; empty if it is on no rank in particular.
        group: label of the process group of a transfer.
        kind: of communication, of a transfer.
        phase: that it is in.
        module: the stage of a pipeline, as "stage 2".
    """

    cause: str
    ranks: tuple[int, ...] = ()
    group: str | None = None
    kind: str | None = None
    phase: str | None = None
    module: str | None = None


_Times = Counter[StepCause]


def step_causes(
    run: Run, arrivals: Arrivals, path: CriticalPath, verdict: Verdict, pipeline: Pipeline | None
) -> tuple[int, dict[StepCause, int]]:
    """Return the mean step in ns, and its causes with their times, the longest first, whose sum is the step."""
    if not path.steps:
        return 0, {}
    instances = arrivals.instances  # beside a rank without work the others take no longer than usual
    usual = np.isin(instances.step, np.array(steps_without_work(run), dtype=np.int64))
    arrivals = replace(arrivals, instances=replace(instances, excess_ns=np.where(usual, 0, instances.excess_ns)))
    times = _times(run, arrivals, path.intervals, _messages_by_themselves_ns(run, arrivals, pipeline))
    times = _with_slow(times, run, arrivals, path.intervals, verdict, path.steps)
    times = _with_causes_by_turns(times, run, path.steps)
    times = _with_bubbles(times, run, pipeline, path.steps)
    causes = [cause for cause, time_ns in times.items() if time_ns > 0]
    totals_ns = np.array([times[cause] for cause in causes], dtype=np.float64)
    step_ns = round(sum(times.values()) / path.steps)
    means_ns = apportion(step_ns, totals_ns).tolist()
    longest_first = sorted(zip(causes, means_ns, strict=True), key=lambda item: (-item[1], str(item[0])))
    return step_ns, {cause: time_ns for cause, time_ns in longest_first if time_ns}


def _messages_by_themselves_ns(run: Run, arrivals: Arrivals, pipeline: Pipeline | None) -> Int64:
    """Return how long messages of a pipeline take if they wait for nothing, int64 [m]; or -1, as without a pipeline."""
    if pipeline is None or pipeline.causes_ns is None:
        return np.full(len(run.messages), ABSENT)
    return fastest_messages(run, arrivals.message_times.by_themselves_ns)


def _times(run: Run, arrivals: Arrivals, intervals: Sequence[PathInterval], by_themselves_ns: Int64) -> _Times:
    """Return the times of all steps by cause, before anything is blamed on a named rank, a link or a pipeline.

    by_themselves_ns: int64 [m], how long each message takes if it waits for nothing, or -1.
    """
    stage_of, times = _stages(run), _Times()
    for interval in intervals:
        if interval.is_transfer:
            late_ns = _late_ns(arrivals, interval, by_themselves_ns)
            for (_, phase), time_ns in _shorter(interval.times_ns, late_ns).items():
                times[_transfer(run, arrivals, interval.instance, phase)] += time_ns
            times[StepCause(cause="late_peer")] += late_ns
            continue
        variation_ns, others_ns = _split(run, arrivals, interval)
        for (activity, phase), time_ns in others_ns.items():
            times[StepCause(cause=activity, phase=phase, module=stage_of.get(interval.rank))] += time_ns
        if variation_ns:
            times[StepCause(cause="variation")] += variation_ns
    return times


def _late_ns(arrivals: Arrivals, transfer: PathInterval, by_themselves_ns: Int64) -> int:
    """Return by how much a transfer takes longer than its message does by itself; 0 where that is not known."""
    message = transfer.instance - arrivals.collectives
    if message < 0 or by_themselves_ns[message] == ABSENT:
        return 0
    return max(transfer.end_ns - transfer.start_ns - int(by_themselves_ns[message]), 0)


def _stages(run: Run) -> dict[int, str]:
    """Return the stages of each rank of a pipeline, in words."""
    stages = {s.rank: s.pipeline.layout.stage_ids for s in run.ranks if s.pipeline is not None}
    return {rank: f"stage{'s' * (len(ids) > 1)} {', '.join(map(str, ids))}" for rank, ids in stages.items() if ids}


def _transfer(run: Run, arrivals: Arrivals, which: int, phase: str) -> StepCause:
    if which == ABSENT:
        return StepCause(cause="transfer", phase=phase or None)
    group = int(arrivals.instances.group[which])
    return StepCause(
        cause="transfer",
        kind=KINDS[int(arrivals.instances.kind[which])],
        group=None if group == ABSENT else run.groups[group].label,
        phase=phase or None,
    )


def _split(run: Run, arrivals: Arrivals, interval: PathInterval) -> tuple[int, dict[tuple[str, str], int]]:
    """Return by how much an interval is longer than what the rank's peers took before the same collective, and the
    times of the rest by activity and phase. A pause, such as a checkpoint, is no such excess: its cause is known.
    """
    which, instances, times_ns = interval.instance, arrivals.instances, dict(interval.times_ns)
    if not 0 <= which < arrivals.collectives or instances.rank[which] == ABSENT:  # several ranks were last
        return 0, times_ns
    if run.ranks[int(instances.rank[which])].rank != interval.rank:
        return 0, times_ns
    paused_ns = _paused_ns(run, instances, which)
    left_ns = excess_ns = min(max(int(instances.excess_ns[which]) - paused_ns, 0), interval.end_ns - interval.start_ns)
    if not excess_ns:
        return 0, times_ns
    of_causes = ((("data",), instances.data_ns), (("compute",), instances.compute_ns), (_HOST, None))
    for activities, longer in of_causes:
        of_activity = {key: time_ns for key, time_ns in times_ns.items() if key[0] in activities}
        available_ns = sum(of_activity.values())
        taken_ns = min(left_ns, available_ns, left_ns if longer is None else max(int(longer[which]), 0))
        times_ns |= _shorter(of_activity, taken_ns)
        left_ns -= taken_ns
    return excess_ns, _shorter(times_ns, left_ns)


def _paused_ns(run: Run, instances: CollectiveInstances, which: int) -> int:
    """Return how long the last rank of an instance paused in the segment before it, perhaps in the step before."""
    summary, row = run.ranks[int(instances.rank[which])], int(instances.row[which])
    pauses, ready_ns = summary[PAUSE_TIMES], int(summary.collectives.ready_ns[row])
    begin_ns = np.maximum(pauses.start_ns, int(instances.since_ns[which]))
    return int(np.maximum(np.minimum(pauses.end_ns, ready_ns) - begin_ns, 0).sum())


def _shorter(times_ns: Mapping[K, int], less_ns: int) -> dict[K, int]:
    """Return times that are shorter by `less_ns` in sum, each in proportion."""
    if not less_ns:
        return dict(times_ns)
    values = np.array(list(times_ns.values()), dtype=np.int64)
    return dict(zip(times_ns, apportion(int(values.sum()) - less_ns, values).tolist(), strict=True))


# ---- who is named ---------------------------------------------------------------------------------------------------
def _with_slow(
    times: _Times, run: Run, arrivals: Arrivals, intervals: Sequence[PathInterval], verdict: Verdict, steps: int
) -> _Times:
    """Return the times with what the named ranks or link take beyond the others as a cause of their own."""
    if verdict.cause is None or not verdict.concerned:
        return times
    budget_ns = verdict.caused_delay_ns * steps
    if verdict.link is not None:
        taken = _of_link(run, arrivals, intervals, verdict.link.ranks)
        return _move(times, taken, budget_ns, StepCause(cause="slow_link", ranks=verdict.concerned))
    taken = _of_ranks(run, arrivals, intervals, verdict)
    return _move(times, taken, budget_ns, StepCause(cause=f"slow_{verdict.cause}", ranks=verdict.concerned))


def _with_causes_by_turns(times: _Times, run: Run, steps: int) -> _Times:
    """Return the times with most of the variation between ranks as the cause that hits one of them in each step."""
    variation, common = StepCause(cause="variation"), sorted(run.common_steps())
    by_turns_ns = time_by_turns_ns(run, common) if common and times[variation] else {}
    name = max(by_turns_ns, key=lambda name: by_turns_ns[name], default="")
    time_ns = by_turns_ns.get(name, 0) * steps
    if time_ns < _MOST * times[variation] or not time_ns:
        return times
    return _move(times, _Times({variation: times[variation]}), time_ns, StepCause(cause=f"slow_{name}"))


def _of_link(run: Run, arrivals: Arrivals, intervals: Sequence[PathInterval], ranks: tuple[int, ...]) -> _Times:
    """Return the times of transfers over a link."""
    taken = _Times()
    for interval in intervals:
        which = interval.instance
        if not interval.is_transfer or which == ABSENT:
            continue
        message = which - arrivals.collectives
        if message >= 0:
            ends = {int(run.messages.source[message]), int(run.messages.destination[message])}
        else:
            ends = set(run.groups[int(arrivals.instances.group[which])].ranks)
        if ends == set(ranks):
            for (_, phase), time_ns in interval.times_ns.items():
                taken[_transfer(run, arrivals, which, phase)] += time_ns
    return taken


def _of_ranks(run: Run, arrivals: Arrivals, intervals: Sequence[PathInterval], verdict: Verdict) -> _Times:
    """Return the times of the named ranks: first what they took beyond their peers, then such work as they are named
    for, then any other.
    """
    stage_of, by_order = _stages(run), [_Times(), _Times(), _Times()]
    wanted = _WORK.get(verdict.cause or "", ())
    for interval in intervals:
        if interval.is_transfer or interval.rank not in verdict.concerned:
            continue
        variation_ns, others_ns = _split(run, arrivals, interval)
        by_order[0][StepCause(cause="variation")] += variation_ns
        for (activity, phase), time_ns in others_ns.items():
            cause = StepCause(cause=activity, phase=phase, module=stage_of.get(interval.rank))
            by_order[1 if activity in wanted else 2][cause] += time_ns
    taken = _Times()
    for times in by_order:
        taken.update(times)
    return taken


def _move(times: _Times, taken: _Times, budget_ns: int, to: StepCause) -> _Times:
    """Return times of which at most `budget_ns` have moved from those in `taken`, in their order, to another cause."""
    moved = times.copy()
    for cause, time_ns in taken.items():
        part_ns = min(time_ns, budget_ns, moved[cause])
        moved[cause] -= part_ns
        moved[to] += part_ns
        budget_ns -= part_ns
    return moved


# ---- pipelines ------------------------------------------------------------------------------------------------------
def _with_bubbles(times: _Times, run: Run, pipeline: Pipeline | None, steps: int) -> _Times:
    """Return the times with what the chain computes longer than the pipeline's ranks do, divided as their bubbles."""
    causes_ns = {} if pipeline is None or pipeline.causes_ns is None else pipeline.causes_ns
    weights = np.array([max(causes_ns.get(f"{cause}_ns", 0), 0) for cause in _BUBBLES], dtype=np.float64)
    works = {cause: time_ns for cause, time_ns in times.items() if cause.cause == "compute"}
    members = [summary for summary in run.ranks if summary.pipeline is not None]
    common = run.common_steps()
    of_ranks_ns = [sum(part.compute_ns for part in summary.steps if part.step in common) for summary in members]
    if not weights.any() or not works or not of_ranks_ns:
        return times
    beyond_ns = sum(works.values()) - round(sum(of_ranks_ns) / len(of_ranks_ns))
    if beyond_ns <= 0:
        return times
    moved = times.copy()
    for cause, left_ns in _shorter(works, beyond_ns).items():
        moved[cause] = left_ns
    for name, part_ns in zip(_BUBBLES, apportion(beyond_ns, weights).tolist(), strict=True):
        moved[StepCause(cause=name)] += part_ns
    return moved


def phase_activities(recorded: RecordedSteps) -> PhaseActivities:
    """Return how long the rank did what in each interval of one phase, from the first step to the end of the last."""
    lanes = recorded.lanes
    if not recorded.steps:
        return PhaseActivities.empty()
    phases = recorded.once(recorded_phase_times)
    begin_ns = np.concatenate([phase.start_ns for phase in phases])
    end_ns = np.concatenate([phase.end_ns for phase in phases])
    phase = np.repeat(np.arange(len(phases)), [len(of_phase) for of_phase in phases])
    order = np.argsort(begin_ns, kind="stable")
    begin_ns, end_ns, phase = begin_ns[order], end_ns[order], phase[order]
    computing, loading = recorded.once(computing_or_loading)
    idle = recorded.once(idle_by_cause)
    of_activity = {cause: time - loading for cause, time in idle.items()} | {
        "compute": computing,
        "copy": lanes.exposed_copy - loading,
        "data": loading - lanes.exposed_communication,
    }
    times_ns = np.stack([of_activity[name].covered_ns(begin_ns, end_ns) for name in ACTIVITIES], axis=1)
    row, activity = np.nonzero(times_ns)
    return PhaseActivities(
        begin_ns=begin_ns[row],
        end_ns=end_ns[row],
        phase=phase[row].astype(np.int32),
        activity=activity.astype(np.int32),
        time_ns=times_ns[row, activity],
    )


def _diagnose(given: AnalysisInput) -> Diagnosis | Unavailable:

    if given.run.common_steps() and given.run.ranks_are_independent:
        return Unavailable(reason=INDEPENDENT, expected=True)
    path, found = given.result(CRITICAL_PATH_SECTION), given.result(STRAGGLERS_SECTION)
    if isinstance(path, Unavailable) or isinstance(found, Unavailable):
        return Unavailable(reason="the chain that bounds the steps is not known")
    of_pipeline = given.once(pipeline)
    return diagnose(
        given.run,
        given.once(arrivals),
        path,
        found.verdict,
        None if isinstance(of_pipeline, Unavailable) else of_pipeline,
    )


CRITICAL_PATH_SECTION: Section[CriticalPath] = Section(
    name="critical_path",
    reads=(STEP_ENDS, PHASE_ACTIVITIES, WAITS),
    keeps={STEP_ENDS: step_end_segments, PHASE_ACTIVITIES: phase_activities},
    analyze=lambda given: critical_path(given.run, given.once(arrivals)),
    tables=(tables.CRITICAL_PATH,),
)


DIAGNOSIS_SECTION: Section[Diagnosis] = Section(
    name="diagnosis",
    reads=(COMMUNICATION_SUMS, PAUSE_TIMES, *CRITICAL_PATH_SECTION.reads, *STRAGGLERS_SECTION.reads),
    analyze=_diagnose,
    tables=(tables.CAUSES,),
)
