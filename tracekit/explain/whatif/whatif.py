"""How much of a job's step is due to slow ranks and stages, what changes would save, and for which ranks others wait.

The measures are those of

    Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI 2025.

T is the mean step of the replay with the measured durations, and T_ideal that with the ideal ones (see `Replays`). The
slowdown S is T / T_ideal. S of a rank, stage or type is the same if only its operations last as measured. M_W is the
share of T - T_ideal that disappears if the slowest 3 % of the ranks are ideal, M_S the share that disappears if the
last stage is. The replay leaves out what the graph does not know, such as gaps between operations: `replay_error` =
T / measured step - 1 says how far to trust the other figures.

Others wait for a rank if one of them ends its steps earlier when that rank is faster.

The saving that a finding states is that of a replay of this run with what the finding advises. A finding names its
remedy as `Change` does, and whom it concerns in `ranks`, or in its rank. Some sections replay what they advise
themselves: their findings have an error of the saving from the start. Any other saving is an estimate. It is dropped,
and `no_replay` in the evidence says why there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar, cast

import numpy as np

from tracekit.errors import InputError
from tracekit.explain.section import Result, Unavailable
from tracekit.explain.step_time.step_rates import INDEPENDENT
from tracekit.explain.whatif import tables
from tracekit.explain.whatif.candidates import Candidate
from tracekit.explain.whatif.changes import Change, Replays, Trials, find_worthwhile_changes
from tracekit.explain.whatif.graph.run_graph import build_run_graph
from tracekit.explain.whatif.peer_speed import at_peers_speed
from tracekit.findings.catalogue import restated
from tracekit.findings.communication import REPLAYED_ACTIONS
from tracekit.findings.finding import SAVES_NOTHING, Finding, Remedy
from tracekit.findings.thresholds import NOTABLE_SHARE, REPLAY_ERROR
from tracekit.model.events import Bool
from tracekit.model.run import Run
from tracekit.model.table import DerivedFrame, Rows
from tracekit.rank.pauses import PAUSES
from tracekit.replay.operation_graph import GraphSteps, OperationGraph
from tracekit.stats.uncertainty import saving_conditions

C = TypeVar("C", Change, Candidate)
R = TypeVar("R")

_SLOWEST_PERCENT = 3
_NO_SLOWNESS = 0.001  # T - T_ideal below this share of T: there is nothing to divide among causes
_MOST_REPLAYED_OPERATIONS = 200_000_000  # over all replays of one question
_MISSING = "ranks are missing, and waiting for them cannot be told from transfer"
_REPLAYED_RANKS = 64  # of many ranks these are replayed one by one, those first that can add most to the step
_SHARE = 0.1  # of what the rank itself gains: less may be an error of the clocks

_ALTERNATIVES: Mapping[Remedy, Remedy] = {"load": "ranks", "stages": "ranks", "communication": "network"}
_LIMITS: tuple[Remedy, ...] = ("host", "network", "data")
_OF_REPLAYS = ("no_replay", "bound_ns")  # evidence that each replay gives anew
_FAR_BELOW = 0.5  # of the time that a finding is about: if it saves less, something else limits the step
_NOT_ASKED = "the section whatif was not asked for"
_NOT_REPLAYED = "no replay has this change"


def _slowdown_rows(result: WhatIf) -> Rows:
    kinds: dict[str, Mapping[Any, float]] = {"rank": result.by_rank, "stage": result.by_stage, "type": result.by_type}
    return [
        {"of": kind, "name": str(name), "slowdown": slowdown}
        for kind, slowdowns in kinds.items()
        for name, slowdown in slowdowns.items()
    ]


def _replay_rows(result: WhatIf) -> Rows:
    of_steps = {
        "measured_step_ns": result.measured_ns,
        "replayed_step_ns": result.replayed_ns,
        "ideal_step_ns": result.ideal_ns,
    }
    return [tables.WHATIF_REPLAY.row(result, **of_steps)]


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """What replays of a job show; all times are means a step.

    The DataFrame `fix` has the changes, `slowdowns` what only a rank, stage or type costs, and `replay` the steps that
    were replayed.

    Attributes:
        steps: how many steps were replayed.
        measured_ns: the step as measured.
        replayed_ns: the step as replayed, T.
        ideal_ns: the ideal step, T_ideal.
        slowdown: T / T_ideal, S.
        replay_error: T / measured step - 1.
        by_rank: S of each rank; of the slowest only, where there are many.
        by_type: S of each type of operation.
        by_stage: S of each stage.
        slowest_ranks_share: the share of the slowness that the slowest 3 % of the ranks explain, M_W; None if nothing
            is slow.
        last_stage_share: the share that the last stage explains, M_S; None if nothing is slow, or without stages.
        changes: changes that surely save something, the largest saving first.
        not_tried: why changes with some remedies were not tried.
        notes: what was left out, and why.
        findings: what of this is worth a sentence.
        waited_for: ranks of changes that others wait for; known of runs without collectives.
        trials: what changes save after others; None once findings are in order.
    """

    steps: int
    measured_ns: int
    replayed_ns: int
    ideal_ns: int
    slowdown: float
    replay_error: float
    by_rank: Mapping[int, float]
    by_type: Mapping[str, float]
    by_stage: Mapping[int, float]
    slowest_ranks_share: float | None
    last_stage_share: float | None
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    not_tried: Mapping[Remedy, str] = field(default_factory=dict)
    waited_for: frozenset[int] = frozenset()
    trials: Trials | None = field(default=None, repr=False, compare=False)

    fix = DerivedFrame(tables.WHATIF, lambda result: [tables.WHATIF.row(change) for change in result.changes])
    slowdowns = DerivedFrame(tables.WHATIF_SLOWDOWNS, _slowdown_rows)
    replay = DerivedFrame(tables.WHATIF_REPLAY, _replay_rows)


def what_if_of_run(run: Run) -> WhatIf | Unavailable:
    """Replay a recorded run; Unavailable if it cannot be: no common steps, clocks that are not known, ranks that do not
    communicate, so that a step of one is no part of a step of the job.
    """
    if run.common_steps() and run.ranks_are_independent:
        return Unavailable(reason=INDEPENDENT, expected=True)
    try:
        graph = build_run_graph(run)
    except InputError as error:
        return Unavailable(reason=str(error).removeprefix(f"{run.path}: "))
    result = what_if(graph)
    if run.has_collectives:
        return result
    stages = {summary.rank for summary in run.ranks if summary.pipeline is not None}  # these have no peers
    changes = [change for change in result.changes if change.rank not in stages]
    return replace(result, waited_for=ranks_waited_for(graph, changes))


def what_if(graph: OperationGraph) -> WhatIf:
    """Replay a job as measured, as ideal, and with each change."""
    replays = Replays(graph)
    notes = list(graph.notes)
    measured_ns = float(np.concatenate([group.measured_ns for group in graph.step_groups]).mean())
    steps_ns = replays.measured_and_ideal_ns[:, 0]
    replayed_ns, ideal_ns = float(steps_ns.mean()), replays.ideal_ns
    replay_error = replayed_ns / measured_ns - 1 if measured_ns else 0.0
    by_stage = replays.slowdowns(lambda group: group.stage)
    by_rank, bound_ns = _slowdown_by_rank(replays, by_stage, notes), replays.largest_possible_delay_ns
    slowness_ns = replayed_ns - ideal_ns
    if replays.are_long:
        notes.append("very many operations: the slowdown of each type is left out, and few ranks and links are tried")
    if len(steps_ns) == 1:
        notes.append("one step: how much savings differ from step to step is not known")

    def explained_share(is_cause: Callable[[GraphSteps], Bool]) -> float | None:
        if slowness_ns <= _NO_SLOWNESS * replayed_ns:
            return None
        return (replayed_ns - replays.mixed_ns(lambda group: ~is_cause(group))) / slowness_ns

    slowest_first = sorted(by_rank or bound_ns, key=lambda rank: (-(by_rank or bound_ns)[rank], rank))
    slowest = slowest_first[: _slowest_count(len(bound_ns))]
    last_stage = max(by_stage, default=0)
    trials = Trials.of(replays, steps_ns, measured_ns, replay_error, slowest_first)
    return WhatIf(
        steps=len(steps_ns),
        measured_ns=round(measured_ns),
        replayed_ns=round(replayed_ns),
        ideal_ns=round(ideal_ns),
        slowdown=replayed_ns / ideal_ns if ideal_ns else 1.0,
        replay_error=replay_error,
        by_rank=by_rank,
        by_type={} if replays.are_long else _slowdown_by_type(replays),
        by_stage=by_stage,
        slowest_ranks_share=explained_share(lambda group: np.isin(group.rank, slowest)) if slowest else None,
        last_stage_share=explained_share(lambda group: group.stage == last_stage) if last_stage else None,
        changes=find_worthwhile_changes(trials),
        notes=tuple(notes),
        not_tried={} if graph.transfers_are_known else dict.fromkeys(("communication", "network", "link"), _MISSING),
        trials=trials,
    )


def _slowdown_by_type(replays: Replays) -> dict[str, float]:
    return {replays.graph.types[number]: s for number, s in replays.slowdowns(lambda group: group.type).items()}


def _slowdown_by_rank(replays: Replays, by_stage: Mapping[int, float], notes: list[str]) -> dict[int, float]:
    """Return S of each rank; where ranks form a grid of replicas and stages, the smaller S of its replica and stage."""
    groups = replays.graph.step_groups
    if all((np.minimum(group.replica, group.stage)[group.rank >= 0] >= 0).all() for group in groups):
        places = {
            place for g in groups for place in zip(g.rank.tolist(), g.replica.tolist(), g.stage.tolist(), strict=True)
        }
        by_replica = replays.slowdowns(lambda group: group.replica)
        known = sorted(place for place in places if place[0] >= 0)
        return {rank: min(by_replica[replica], by_stage[stage]) for rank, replica, stage in known}
    bound_ns = replays.largest_possible_delay_ns
    slowest_first = sorted(bound_ns, key=lambda rank: (-bound_ns[rank], rank))
    count = min(len(bound_ns), max(_REPLAYED_RANKS, _slowest_count(len(bound_ns))))
    if count * sum(duration_ns.size for duration_ns in replays.measured) > _MOST_REPLAYED_OPERATIONS:
        notes.append(f"the slowdown of each of {count} ranks would take too many replays; left out")
        return {}
    replayed, others = slowest_first[:count], slowest_first[count:]
    if others and replays.ideal_ns:
        notes.append(
            f"the slowdown of the {count} of {len(bound_ns)} ranks whose operations last longest beyond the ideal; "
            f"that of no other is above {1 + bound_ns[others[0]] / replays.ideal_ns:.3f}"
        )
    return replays.slowdowns(lambda group: np.where(np.isin(group.rank, replayed), group.rank, -1))


def _slowest_count(ranks: int) -> int:
    """Return how many ranks the slowest 3 % are, rounded up."""
    return -(-_SLOWEST_PERCENT * ranks // 100)


def ranks_waited_for(graph: OperationGraph, changes: Iterable[Change]) -> frozenset[int]:
    """Return the ranks that are changed alone and that others wait for. A message that nobody waits for is no wait."""
    ranks = [change.rank for change in changes if change.remedy == "ranks" and change.rank is not None]
    return frozenset(rank for rank in ranks if _is_waited_for(graph, rank))


def _is_waited_for(graph: OperationGraph, rank: int) -> bool:
    for group, faster_ns in zip(graph.step_groups, at_peers_speed(graph, (rank,)), strict=True):
        before_ns, after_ns = group.rank_ends_ns(group.duration_ns), group.rank_ends_ns(faster_ns)
        gains_ns = {other: end_ns - after_ns[other] for other, end_ns in before_ns.items()}
        own_ns = gains_ns.pop(rank, 0.0)
        if own_ns > 0 and max(gains_ns.values(), default=0.0) >= _SHARE * own_ns:
            return True
    return False


def with_stated_savings(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of sections, by name, with findings that state what they save."""
    whatif = results.get("whatif")
    stated: dict[str, Any] = {}
    for name, result in results.items():
        findings = () if isinstance(result, Unavailable) else cast(Result, result).findings
        of_section = tuple(state_saving(finding, whatif) for finding in findings)
        stated[name] = result if of_section == findings else with_fields(result, findings=of_section)
    return stated


def with_fields(result: R, **fields: object) -> R:
    """Return a copy of a result with other fields. `dataclasses.replace` would make a DataFrame of each table."""
    changed = copy(result)
    vars(changed).update(fields)
    return changed


def state_saving(finding: Finding, whatif: WhatIf | Unavailable | None, made: Sequence[Finding] = ()) -> Finding:
    """Return a finding with the saving of the change that is what it advises, and its error.

    `change` in the evidence names the change. Without one there is no saving; if the finding advises something,
    `no_replay` in the evidence says why. That communication takes no time is no advice: `bound_ns` in the evidence has
    what that would save. A finding whose section replayed what it advises keeps that saving.

    whatif: None if it was not asked for. made: findings whose changes are made before.
    """
    replayed = whatif if isinstance(whatif, WhatIf) else None
    change = None if replayed is None else _replayed(finding, replayed, made)
    evidence = {name: value for name, value in finding.evidence.items() if name not in _OF_REPLAYS}
    if change is not None and change.remedy == "network":
        evidence["bound_ns"] = change.saves_ns_per_step
        return restated(finding, evidence, saving_ns=None, saving_error_ns=None)
    if change is not None:
        conditions = finding.conditions
        if finding.remedy == "host":  # what a late host costs is known by what the replay saves, not by a share
            saved_ns = change.saves_ns_per_step
            conditions = saving_conditions(saved_ns, change.error_ns, saved_ns / change.share)
            conditions = (*(NOTABLE_SHARE.reached_by(share.value) for share in finding.conditions[:1]), *conditions)
        return replace(
            finding,
            saving_ns=change.saves_ns_per_step,
            saving_error_ns=change.error_ns,
            action=REPLAYED_ACTIONS.get(change.remedy, finding.action),
            evidence={**evidence, "change": change.what},
            conditions=conditions,
        )
    if finding.remedy is None and (finding.saving_error_ns is not None or finding.saving_ns is None):
        return finding
    if finding.saving_error_ns is not None and "change" not in finding.evidence:
        return finding
    evidence["no_replay"] = finding.evidence.get("no_replay") or _why_not(finding, whatif)
    if "bound_ns" in finding.evidence:
        return restated(finding, evidence)
    return replace(finding, saving_ns=None, saving_error_ns=None, evidence=evidence)


def with_replay_error(finding: Finding, whatif: WhatIf | Unavailable | None) -> Finding:
    """Return a finding whose remedy is replayed with the replay's error, if that is large: then it is not sure."""
    is_off = isinstance(whatif, WhatIf) and abs(whatif.replay_error) > REPLAY_ERROR
    if not is_off or (finding.remedy is None and "bound_ns" not in finding.evidence):
        return finding
    evidence = {**finding.evidence, "replay_error": cast(WhatIf, whatif).replay_error}
    return replace(finding, certainty="likely", evidence=evidence)


def with_next_limit(finding: Finding, whatif: WhatIf | Unavailable | None, made: Sequence[Finding]) -> Finding:
    """Return a finding that saves far less than the time it is about with what limits the step next, if that is known.

    `next_limit` in the evidence is the remedy of a change with which the finding's own would save most of its time.
    """
    trials = whatif.trials if isinstance(whatif, WhatIf) else None
    time_ns, bound_ns = finding.time_ns or 0, finding.evidence.get("bound_ns")
    saved_ns = bound_ns if isinstance(bound_ns, int) else finding.saving_ns or 0
    if trials is None or finding.remedy is None or saved_ns >= _FAR_BELOW * time_ns:
        return finding
    before, own = _candidates_of(made, trials), next(_changes_for(finding, trials.tried), None)
    others = [each for each in trials.tried if each.remedy in _LIMITS and not each.ranks and own not in (None, each)]
    gains_ns = {
        other.remedy: change.saves_ns_per_step
        for other in others
        if other not in before and (change := _tried(finding, trials, [*before, other])) is not None
    }
    limit = max(gains_ns, key=lambda remedy: gains_ns[remedy], default=None)
    if limit is None or gains_ns[limit] < max(_FAR_BELOW * time_ns, 2 * saved_ns):
        return finding
    return replace(finding, evidence={**finding.evidence, "next_limit": limit})


def _replayed(finding: Finding, whatif: WhatIf, made: Sequence[Finding]) -> Change | None:
    """Return what a finding's change saves after those of others; None if that is not worthwhile."""
    if not made or whatif.trials is None:
        return next(_changes_for(finding, whatif.changes), None)
    return _tried(finding, whatif.trials, _candidates_of(made, whatif.trials))


def _tried(finding: Finding, trials: Trials, before: Sequence[Candidate]) -> Change | None:
    changes = (trials.change(candidate, before) for candidate in _changes_for(finding, trials.tried))
    return next((change for change in changes if change is not None), None)


def _candidates_of(made: Sequence[Finding], trials: Trials) -> list[Candidate]:
    """Return the changes of findings. One without a saving is not made: it is a bound, or nobody knows how."""
    mended = (finding for finding in made if finding.saving_ns)
    return [each for finding in mended for each in islice(_changes_for(finding, trials.tried), 1)]


def _changes_for(finding: Finding, changes: Iterable[C]) -> Iterator[C]:
    """Yield the changes that do what a finding advises, the best first.

    A pause of all ranks may save as much if only the rank that the others wait for has none.
    """
    if finding.remedy is None:
        return
    loads = finding.remedy == "ranks" and finding.cause == "data"  # a stage of a pipeline has no peers to be at
    remedies = (finding.remedy, "data" if loads else _ALTERNATIVES.get(finding.remedy))
    replayed = [change for remedy in remedies for change in changes if change.remedy == remedy]
    concerned, of_all = set(finding.concerned), finding.remedy in PAUSES and not finding.concerned
    yield from (change for change in replayed if of_all or not change.ranks or set(change.ranks) == concerned)


def _why_not(finding: Finding, whatif: WhatIf | Unavailable | None) -> str:
    if finding.remedy is None:
        return _NOT_REPLAYED
    if whatif is None:
        return _NOT_ASKED
    if isinstance(whatif, Unavailable):
        return whatif.reason
    return whatif.not_tried.get(finding.remedy, SAVES_NOTHING)
