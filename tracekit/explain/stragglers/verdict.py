"""Which rank, ranks or link the verdict names, with the cause and its certainty, and who comes close."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tracekit.explain.model_parallel.expert_load import Overload, overloaded_ranks
from tracekit.explain.pauses.pauses import reason_of_delay
from tracekit.explain.step_time.step_lengths import mean_step_ns, uncounted_first_steps
from tracekit.explain.step_time.step_rates import INDEPENDENT
from tracekit.explain.stragglers.arrivals import Arrivals
from tracekit.explain.stragglers.candidates import (
    Candidate,
    candidates,
    count_last_arrivals,
    first_to_name,
    waits_for,
)
from tracekit.explain.stragglers.certainty import Evidence, Grading
from tracekit.explain.stragglers.clock_rates import lower_clock
from tracekit.explain.stragglers.delay_attribution import CAUSES, CausedDelays
from tracekit.explain.stragglers.host_causes import cause_of_late_hosts
from tracekit.explain.stragglers.slow_ranks import WorkTimes, work_times
from tracekit.explain.stragglers.slow_transfers import SlowNetworkLink
from tracekit.explain.stragglers.some_steps import late_in_some_steps, without_work
from tracekit.findings.catalogue import Entry
from tracekit.findings.finding import Certainty, Condition, Finding
from tracekit.findings.stragglers import (
    closest_text,
    idle_steps,
    late_steps,
    nobody_is_late_text,
    nobody_text,
    slow_link,
    straggler,
)
from tracekit.findings.thresholds import NOTABLE_SAVING
from tracekit.model.run import Run, largest_pair_error_ns
from tracekit.model.summary import RankSummary
from tracekit.stats.grouped import grouped

_COMPUTING = ("compute", "more_work")  # causes that a higher load of experts may have
_EXPLAINED = 0.5  # of a delay, by the load of experts, by longer compute, or by idle time of a late host
_MOST_COMPUTE = 11  # times what peers compute: more is no share worth telling
_ENOUGH_STEPS = 0.8  # of those of the rank with the most
_CLOSE = 3  # candidates that come close are told of


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The rank, the ranks or the link that is named. Where none is, the figures are those of what comes closest.

    Attributes:
        rank: the rank; None if none, several or a link is named.
        ranks: several ranks that are slow together.
        host: their machine, if these are all of its ranks.
        cause: one of `CAUSES` or of `PAUSES`, what a late host does (`host_causes`), "link", or None if none is named.
        link: the link that is named.
        caused_delay_ns: the delay that it causes beyond the others, the median of the steps.
        significance_ns: the delay that would be sure.
        share_of_step: the delay as a share of the step.
        persistence: the share of steps that show the delay.
        certainty: how sure it is; None if none is named.
        text: the verdict in words.
    """

    rank: int | None = None
    ranks: tuple[int, ...] = ()
    host: str | None = None
    cause: str | None = None
    link: SlowNetworkLink | None = None
    caused_delay_ns: int = 0
    significance_ns: int | None = None
    share_of_step: float = 0.0
    persistence: float = 0.0
    certainty: Certainty | None = None
    text: str = ""

    @property
    def concerned(self) -> tuple[int, ...]:
        """Return the ranks that are named, or that the link connects."""
        if self.link is not None:
            return self.link.ranks
        return self.ranks or (() if self.rank is None else (self.rank,))


def name_culprit(
    run: Run,
    arrivals: Arrivals,
    charges: CausedDelays,
    links: Sequence[SlowNetworkLink],
    steps: Sequence[int],
    *,
    comparable: bool,
) -> tuple[Verdict, list[Finding]]:
    """Return whom the delays of these steps are due to, and the findings: on that one, and on those that come close.

    comparable: whether the clocks of ranks can be compared.
    """
    trained = [rank_index for rank_index, summary in enumerate(run.ranks) if summary.is_measured]
    reason = None
    if len(trained) < 2:
        reason = "a rank alone holds up nobody"
    elif run.ranks_are_independent:
        reason = INDEPENDENT
    elif not comparable:
        reason = "the clocks of different hosts are not known well enough"
    elif not steps:
        reason = "there is no step that all completed"
    if reason is not None:
        return Verdict(text=nobody_text(reason)), []
    clock_ns, step_ns = largest_pair_error_ns(run.clocks), _step_ns(run, steps)
    job_step_ns = max(mean_step_ns(run), 1)
    skipped = uncounted_first_steps(len(steps))
    work, missing = work_times(run, steps), _missing(run, steps)
    grading = Grading(
        step_ns=step_ns,
        candidates=(1 + (len(steps) > 1)) * len(trained) + len(links),  # of sets as many as of ranks
        ranks=len(trained),
        steps=len(steps),
        complete=missing is None,
    )
    overloaded = overloaded_ranks(run)
    judged = _Judged(
        run=run,
        arrivals=arrivals,
        charges=charges,
        links=links,
        steps=steps,
        trained=trained,
        work=work,
        grading=grading,
        overloaded=overloaded,
        missing=missing,
        job_step_ns=job_step_ns,
        clock_ns=clock_ns,
    )
    found = candidates(
        charges,
        trained,
        work,
        grading,
        first=skipped,
        clock_ns=clock_ns,
        last_arrivals=count_last_arrivals(run, arrivals, steps),
        less_loaded={
            run.index_of_rank[rank]: [run.index_of_rank[o] for o in load.others] for rank, load in overloaded.items()
        },
    )
    found = [each if judged.shows_cause(each) else replace(each, certainty=None) for each in found]
    first = first_to_name(found, links)
    others = [each for each in found if (each.indexes, each.is_link) != (first.indexes, first.is_link)]
    others = sorted(others, key=lambda each: -each.evidence.size_ns)[:_CLOSE]
    close = [judged.finding(each, first) for each in others if each.evidence.size_ns > 0]
    close += judged.idle_steps()
    if first.certainty is None and (some := judged.late_in_some_steps()) is not None:
        if some[0].certainty is not None:
            return some[0], [some[1], *close]
        close.append(some[1])
    if first.certainty is None:
        verdict = Verdict(**judged.figures(first), text=_abstention_text(grading, first, clock_ns, job_step_ns))
        return verdict, [*([judged.finding(first)] if first.evidence.size_ns > 0 else []), *close]
    if first.is_link:
        named = judged.finding(first)
        link = links[first.indexes[0]]
        return Verdict(cause="link", link=link, text=named.text, **judged.figures(first)), [named, *close]
    several = judged.named(first)
    pause = reason_of_delay(run, judged.ranks(first), first.evidence.size_ns)
    if pause is not None and judged.overload(first, judged.cause(first)) is None:
        # The section on pauses has a finding about it.
        return Verdict(cause=pause.longest.pause, text=pause.text, **several, **judged.figures(first)), close
    named = judged.finding(first)
    return Verdict(cause=named.cause, text=named.text, **several, **judged.figures(first)), [named, *close]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Judged:
    """What candidates are judged by.

    Attributes:
        trained: indexes of the ranks that were measured.
        overloaded: by rank, where its experts receive most tokens.
        missing: what must be added to be sure.
        job_step_ns: the mean step of the job.
        clock_ns: by how much times of two ranks may be off each other.
    """

    run: Run
    arrivals: Arrivals
    charges: CausedDelays
    links: Sequence[SlowNetworkLink]
    steps: Sequence[int]
    trained: Sequence[int]
    work: WorkTimes | None
    grading: Grading
    overloaded: Mapping[int, Overload]
    missing: str | None
    job_step_ns: int
    clock_ns: int

    def ranks(self, candidate: Candidate) -> tuple[int, ...]:
        return tuple(self.run.ranks[rank_index].rank for rank_index in candidate.indexes)

    def host(self, candidate: Candidate) -> str | None:
        return _host_of(self.run, self.ranks(candidate))

    def named(self, candidate: Candidate) -> dict[str, Any]:
        """Return whom a verdict names."""
        ranks = self.ranks(candidate)
        return {"ranks": ranks, "host": self.host(candidate)} if len(ranks) > 1 else {"rank": ranks[0]}

    def figures(self, candidate: Candidate) -> dict[str, Any]:
        """Return the numbers of a verdict."""
        return {
            "caused_delay_ns": int(self._delay_ns(candidate)),
            "significance_ns": int(candidate.significance_ns),
            "share_of_step": self._delay_ns(candidate) / self.job_step_ns,
            "persistence": candidate.evidence.persistence,
            "certainty": candidate.certainty,
        }

    def cause(self, candidate: Candidate) -> str | None:
        first = uncounted_first_steps(len(self.steps))
        cause = _cause(self.run, candidate, self.charges, self.steps, self.work, first)
        if cause == "host":
            idles = self._idles(candidate)
            longer_ns = 0.0 if self.work is None else self.work.longer_compute_ns(candidate.indexes, first)
            longer = longer_ns / max(candidate.evidence.size_ns, 1)
            peers = [index for index in self.trained if index not in candidate.indexes]
            # A rank whose processor others use is slower at both, and its peers idle as well.
            beyond_ns = self._idle_ns(candidate.indexes) - self._idle_ns(peers)
            if longer_ns > beyond_ns or not idles.holds:
                cause = "compute" if longer >= _EXPLAINED else None
        return "more_work" if self.overload(candidate, cause) is not None else cause

    def _idles(self, candidate: Candidate) -> Condition:
        """Return whether the slow ranks idle or copy for most of the delay, as late hosts do."""
        what = "idle time of its own, as a share of the delay"
        return Condition(
            what=what, value=self._idle_ns(candidate.indexes) / max(candidate.evidence.size_ns, 1), bound=_EXPLAINED
        )

    def _idle_ns(self, rank_indexes: Sequence[int]) -> float:
        ranks = [self.run.ranks[index] for index in rank_indexes]
        return sum(_mean_ns(ranks, self.steps, part) for part in ("idle_ns", "exposed_copy_ns"))

    def _delay_ns(self, candidate: Candidate) -> float:
        """Return the delay: of a late host no more than its breakdown shows."""
        size_ns = candidate.evidence.size_ns
        is_late_host = not candidate.is_link and self.cause(candidate) == "host"
        return min(size_ns, self._idle_ns(candidate.indexes)) if is_late_host else size_ns

    def shows_cause(self, candidate: Candidate) -> bool:
        """Return whether the breakdown of its own time shows why a candidate is late, if it is one that is named."""
        if candidate.is_link or candidate.certainty is None or self.cause(candidate) is not None:
            return True
        return reason_of_delay(self.run, self.ranks(candidate), candidate.evidence.size_ns) is not None

    def overload(self, candidate: Candidate, cause: str | None) -> Overload | None:
        """Return the load of the only rank's experts, if that is why it computes longer. cause: of the delay."""
        if cause not in _COMPUTING or len(candidate.indexes) != 1:
            return None
        return _reason(self.overloaded.get(self.ranks(candidate)[0]), candidate.evidence.size_ns)

    def finding(self, candidate: Candidate, named: Candidate | None = None) -> Finding:
        """Return the finding on a candidate. named: another one, which is the one to name."""
        others = [self.run.ranks[p] for p in self.trained if candidate.is_link or p not in candidate.indexes]
        size_ns, waiting_ns = candidate.evidence.size_ns, _mean_ns(others, self.steps, "exposed_comm_ns")
        conditions = [condition for _, condition in self.grading.conditions(candidate.evidence)]
        if named is not None:
            most_ns = max(named.evidence.size_ns, size_ns + 1) if named.certainty else size_ns
            conditions.append(Condition(what="delay, against the one that is named", value=size_ns / most_ns, bound=1))
        saving_ns = min(size_ns, waiting_ns)
        conditions.append(NOTABLE_SAVING.reached_by(saving_ns / self.grading.step_ns))
        if not candidate.is_link and self.cause(candidate) is None:
            conditions.append(self._idles(candidate))
        numbers: dict[str, Any] = {
            "saving_ns": int(saving_ns),
            "certainty": candidate.certainty or "likely",
            "time_ns": int(self._delay_ns(candidate)),
            "conditions": conditions,
        }
        evidence = {
            "excess_ns": int(size_ns),
            "noise_ns": int(self.grading.noise_ns(candidate.evidence)),
            "clock_ns": self.clock_ns,
            "significance_ns": int(candidate.significance_ns),
            "persistence": candidate.evidence.persistence,
            "steps": len(self.steps),
            "missing": self.missing,
            "peers_compute_ns": int(_mean_ns(others, self.steps, "compute_ns")),
            "peers_exposed_comm_ns": int(waiting_ns),
        }
        if candidate.is_link:
            return self._link_finding(self.links[candidate.indexes[0]], evidence, numbers)
        return self._rank_finding(candidate, evidence, numbers)

    def late_in_some_steps(self) -> tuple[Verdict, Finding] | None:
        """Return the verdict and the finding on ranks that are late in some steps only; None if none come near it."""
        found = None if self.work is None else late_in_some_steps(self.work, self.grading.step_ns)
        if self.work is None or found is None:
            return None
        late_ns = found.series_ns[found.late]
        evidence = Evidence(series_ns=late_ns, slow_ns=late_ns[:, None], peers_ns=late_ns[:, None][:, :0])
        candidate = Candidate(indexes=found.indexes, by_work=True, evidence=evidence, certainty=found.certainty)
        work = self.work.in_steps(found.late)
        late = replace(self, work=work, steps=work.steps)
        shown = {"steps": len(self.steps), "missing": self.missing, "late_steps": list(work.steps)}
        mean_ns, certainty = int(found.mean_ns), found.certainty or "likely"
        numbers = {"saving_ns": mean_ns, "time_ns": mean_ns, "certainty": certainty, "conditions": found.conditions}
        finding = late._rank_finding(candidate, shown, numbers, late_steps)
        figures = self.figures(candidate) | {
            "caused_delay_ns": mean_ns,
            "share_of_step": found.mean_ns / self.job_step_ns,
            "persistence": float(found.late.mean()),
        }
        return Verdict(cause=finding.cause, text=finding.text, **self.named(candidate), **figures), finding

    def idle_steps(self) -> list[Finding]:
        """Return a finding on each rank that computes nothing in some steps."""
        nothing = {} if self.work is None else without_work(self.work)
        ranks = [(self.run.ranks[index].rank, steps) for index, steps in nothing.items()]
        return [
            idle_steps(severity="info", rank=rank, evidence={"rank_steps": steps, "steps": len(self.steps)})
            for rank, steps in ranks
        ]

    def _detailed(self, indexes: Sequence[int], cause: str | None) -> tuple[str | None, dict[str, object]]:
        """Return the cause of slow ranks' delay, of late hosts what they do, with what shows it."""
        alike = set(indexes if self.work is None else self.work.rank_indexes_like(indexes))
        peers = [index for index in self.trained if index not in indexes]
        peers = [index for index in peers if index in alike] or peers
        if cause == "compute":
            devices = _device_models(*([self.run.ranks[i] for i in which] for which in (indexes, peers)))
            return cause, {"other_devices": devices} if devices else {}
        return cause_of_late_hosts(self.run, indexes, peers, self.steps) if cause == "host" else (cause, {})

    def _link_finding(self, link: SlowNetworkLink, evidence: dict[str, Any], numbers: dict[str, Any]) -> Finding:
        slow = {"directed": link.directed, "slowdown": link.slowdown, "reference": link.reference}
        return slow_link(
            severity="info" if link.may_be_slower_by_nature else "warning",
            cause="link",
            evidence={"cause": "link", **evidence, **slow},
            remedy="link",
            ranks=link.ranks,
            **numbers,
        )

    def _rank_finding(
        self, candidate: Candidate, evidence: dict[str, Any], numbers: dict[str, Any], found_by: Entry = straggler
    ) -> Finding:
        ranks, slow = self.ranks(candidate), [self.run.ranks[rank_index] for rank_index in candidate.indexes]
        others = [self.run.ranks[index] for index in self.trained if index not in candidate.indexes]
        cause = self.cause(candidate)
        overload = self.overload(candidate, cause)
        cause, of_cause = self._detailed(candidate.indexes, cause)
        waits = None
        if len(ranks) == 1:
            waits = waits_for(self.run, self.arrivals, candidate.indexes[0], self.steps)
        host = self.host(candidate) if len(ranks) > 1 else None
        on_host = _one_host_of(self.run, slow) if host is None else None
        # What waits below compute, as an early bucket does, delays nobody.
        wait_ns = 0 if waits is None else min(waits.mean_ns, int(_mean_ns(others, self.steps, "exposed_comm_ns")))
        return found_by(
            rank=ranks[0] if len(ranks) == 1 else None,
            cause=cause,
            evidence={
                "cause": cause,
                **evidence,
                "ranks": list(ranks),
                "host": host,
                **({"on_host": on_host} if on_host else {}),
                "peers": len(others),
                "device": self.run.device,
                "share_of_step": self._delay_ns(candidate) / self.job_step_ns,
                "share_of_compute": _longer_share(slow, others, self.steps),
                **of_cause,
                **({"others_wait_ns": wait_ns, "longest_wait": asdict(waits.longest)} if waits else {}),
                **({"expert_load": overload.ratio, "expert_load_estimated": overload.estimated} if overload else {}),
                **({"clock": clock} if cause == "compute" and (clock := lower_clock(slow, others)) else {}),
                **({"recorded_with": options} if (options := _options_of(slow, others)) else {}),
            },
            remedy="ranks" if overload is None else "load",
            ranks=ranks,
            **numbers,
        )


def _options_of(slow: Sequence[RankSummary], others: Sequence[RankSummary]) -> list[str]:
    """Return the options of the profiler with which each of the slow ranks was recorded, and none of the others."""
    of_others = {option for summary in others for option in summary.profiler_options}
    return [o for o in slow[0].profiler_options if o not in of_others and all(o in s.profiler_options for s in slow)]


def _missing(run: Run, steps: Sequence[int]) -> str | None:
    """Return what must be added to be sure: files of ranks, or steps that only some ranks completed."""
    lost = any(summary.unmeasured is not None for summary in run.ranks)
    if run.missing_ranks or len(run.ranks) < (run.world_size or 0) or lost:
        return "the files of all ranks"
    most = max(sum(step.complete for step in summary.steps) for summary in run.ranks if summary.is_measured)
    return "the same steps of all ranks" if len(steps) < _ENOUGH_STEPS * most else None


def _host_of(run: Run, ranks: Sequence[int]) -> str | None:
    """Return the name of the machine of these ranks, if they are all that it has; None otherwise."""
    machines = {summary.machine for summary in run.ranks if summary.rank in ranks}
    there = [summary for summary in run.ranks if summary.machine in machines and not summary.serves_only]
    if len(machines) != 1 or None in machines or len(there) != len(ranks):
        return None
    return there[0].host or there[0].machine


def _one_host_of(run: Run, slow: Sequence[RankSummary]) -> str | None:
    """Return the name of the host that slow ranks share, if the run has several."""
    hosts, names = {summary.host for summary in slow}, {summary.host for summary in run.ranks}
    return next(iter(hosts)) if len(hosts) == 1 and len(names) > 1 else None


def _device_models(slow: Sequence[RankSummary], others: Sequence[RankSummary]) -> dict[str, str] | None:
    """Return the model of the devices of slow ranks and that of the others; None if they are not two models."""
    (of_slow, of_others) = ({summary.device_name for summary in ranks} for ranks in (slow, others))
    if of_slow & of_others or None in of_slow | of_others or len(of_slow) * len(of_others) != 1:
        return None
    return {"slow": str(*of_slow), "others": str(*of_others)}


def _step_ns(run: Run, steps: Sequence[int]) -> float:
    return max(_mean_ns([summary], steps, "step_ns") for summary in run.ranks if summary.is_measured)


def _longer_share(slow: Sequence[RankSummary], others: Sequence[RankSummary], steps: Sequence[int]) -> float | None:
    """Return how much longer slow ranks compute than the others, as a share; None if it tells little."""
    slow_ns, others_ns = (_mean_ns(ranks, steps, "compute_ns") for ranks in (slow, others))
    return slow_ns / others_ns - 1 if others_ns < slow_ns <= _MOST_COMPUTE * others_ns else None


def _mean_ns(ranks: Sequence[RankSummary], steps: Sequence[int], part: str) -> float:
    """Return the mean over the steps of the median over the ranks of a part of the step."""
    wanted = frozenset(steps)
    counted = (step for summary in ranks for step in summary.steps if step.step in wanted)
    by_step = grouped((step.step, int(getattr(step, part))) for step in counted)
    return statistics.fmean(statistics.median(values) for values in by_step.values()) if by_step else 0.0


# ---- causes ---------------------------------------------------------------------------------------------------------
def cause_of(run: Run, rank_index: int, charges: CausedDelays, steps: Sequence[int]) -> str | None:
    """Return the cause of most of a rank's delay; if no part of it has a known cause, the one that its steps show.

    Before a message only the delay is known, not its cause.
    """
    *known, unknown_ns = charges.causes_ns[rank_index].tolist()
    if not any(known) and unknown_ns:
        known = _excess_by_cause(run, rank_index, steps)
    largest = max(known)
    return CAUSES[known.index(largest)] if largest > 0 else None


def _cause(
    run: Run, first: Candidate, charges: CausedDelays, steps: Sequence[int], work: WorkTimes | None, skipped: int
) -> str | None:
    """Return the cause of a candidate's delay: of what is attributed to it, unless the work of ranks tells more."""
    *known, unknown_ns = charges.causes_ns[first.indexes[0]].tolist()
    is_compared = work is not None and set(first.indexes) <= set(work.rank_indexes)
    if work is not None and is_compared and (first.by_work or unknown_ns > sum(known)):
        return work.cause(first.indexes, skipped)
    cause = cause_of(run, first.indexes[0], charges, steps)
    if cause == "more_work" and work is not None and is_compared and not work.may_be_more_work(first.indexes, skipped):
        return "compute"
    return cause


def _reason(overload: Overload | None, delay_ns: float) -> Overload | None:
    """Return the load of a rank's experts if it is the reason for a delay in which the rank computes longer."""
    if overload is None or overload.longer_ns is None:
        return overload
    return overload if overload.longer_ns >= _EXPLAINED * delay_ns else None


def _excess_by_cause(run: Run, rank_index: int, steps: Sequence[int]) -> list[float]:
    """Return by how much a rank's steps exceed those of the ranks that it shares groups with, by `CAUSES`."""
    this = run.ranks[rank_index]
    mates = {rank for matched in run.collectives if this.rank in matched.ranks for rank in matched.ranks.tolist()}
    others = [s for s in run.ranks if s.rank in mates and s.rank != this.rank] or [
        s for s in run.ranks if s.rank != this.rank
    ]
    beyond = {part: _mean_ns([this], steps, part) - _mean_ns(others, steps, part) for part in ("compute_ns", "idle_ns")}
    return [beyond["compute_ns"], 0.0, beyond["idle_ns"], 0.0]


def _abstention_text(grading: Grading, first: Candidate, clock_ns: int, job_step_ns: int) -> str:
    size_ns = first.evidence.size_ns
    if size_ns <= 0:
        return nobody_is_late_text(clock_ns if clock_ns >= NOTABLE_SAVING * grading.step_ns else 0)
    lack = grading.lacks(first.evidence, "likely") or "cause"
    share, persistence = size_ns / job_step_ns, first.evidence.persistence
    return closest_text(lack, size_ns, share, first.significance_ns, persistence)
