"""Which rank, ranks or link the verdict names, with the cause and its certainty, and how the finding says it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tracekit.analysis.communication.link_references import Reference
from tracekit.analysis.finding import Certainty, Finding
from tracekit.analysis.model_parallel.overload import Overload, overloaded_ranks
from tracekit.analysis.pauses.pauses import reason_of_delay
from tracekit.analysis.stats.uncertainty import NOTABLE_SAVING
from tracekit.analysis.step_time.step_lengths import mean_step_ns
from tracekit.analysis.step_time.step_rates import INDEPENDENT
from tracekit.analysis.stragglers.arrivals.arrivals import Arrivals
from tracekit.analysis.stragglers.candidates import (
    Candidate,
    WaitsForRank,
    candidates,
    count_last_arrivals,
    first_to_name,
    waits_for,
)
from tracekit.analysis.stragglers.certainty import Grading, Lack
from tracekit.analysis.stragglers.delay_attribution import CAUSES, CausedDelays
from tracekit.analysis.stragglers.slow_ranks import WorkTimes, work_times
from tracekit.analysis.stragglers.slow_transfers import Link
from tracekit.model.clocks import largest_pair_error_ns
from tracekit.model.ranks import format_ranges
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

__all__ = ["Verdict", "action_text", "cause_of", "link_text", "name_culprit", "rank_text", "until_sure"]

_COMPUTING = ("compute", "more_work")  # causes that a higher load of experts may have
_EXPLAINED = 0.5  # of a delay, by the load of experts
_MOST_COMPUTE = 11  # times what peers compute: more is no share worth telling
_ENOUGH_STEPS = 0.8  # of those of the rank with the most
_MANY_STEPS = 4  # with so many the first is left out: what delayed a rank before it, such as loading, was not recorded
_LONGER_WINDOW = 10  # steps, with which a verdict on few steps may become sure

_COMPARED_WITH: Mapping[Reference, str] = {
    "others alike": "as others for the same",
    "links within hosts": "as links within hosts for the same (no other between hosts carries it)",
    "links between hosts": "as links between hosts for the same (no other within a host carries it)",
    "NVLink": "as NVLink would for the same",
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The rank, the ranks or the link that is named. Where none is, the figures are those of what comes closest.

    Attributes:
        rank: the rank; None if none, several or a link is named.
        ranks: several ranks that are slow together.
        host: their machine, if these are all of its ranks.
        cause: one of `CAUSES` or of `PAUSES`, "link", or None if none is named.
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
    link: Link | None = None
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
    links: Sequence[Link],
    steps: Sequence[int],
    *,
    comparable: bool,
) -> tuple[Verdict, list[Finding]]:
    """Return whom the delays of these steps are due to, and the finding that this makes.

    comparable: whether the clocks of ranks can be compared.
    """
    trained = [place for place, summary in enumerate(run.ranks) if summary.is_measured]
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
        return Verdict(text=f"no rank is named: {reason}"), []
    clock_ns, step_ns = largest_pair_error_ns(run.clocks), _step_ns(run, steps)
    job_step_ns = max(mean_step_ns(run), 1)
    skipped = int(len(steps) >= _MANY_STEPS)
    work, missing = work_times(run, steps), _missing(run, steps)
    grading = Grading(
        step_ns=step_ns,
        candidates=(1 + (len(steps) > 1)) * len(trained) + len(links),  # of sets as many as of ranks
        ranks=len(trained),
        steps=len(steps),
        complete=missing is None,
    )
    overloaded = overloaded_ranks(run)
    place_of = {summary.rank: place for place, summary in enumerate(run.ranks)}
    found = candidates(
        charges,
        trained,
        work,
        grading,
        first=skipped,
        clock_ns=clock_ns,
        last_arrivals=count_last_arrivals(run, arrivals, steps),
        less_loaded={place_of[rank]: [place_of[o] for o in load.others] for rank, load in overloaded.items()},
    )
    first = first_to_name(found, links)
    size_ns = first.evidence.size_ns
    figures: dict[str, Any] = {
        "caused_delay_ns": int(size_ns),
        "significance_ns": int(first.significance_ns),
        "share_of_step": size_ns / job_step_ns,
        "persistence": first.evidence.persistence,
        "certainty": first.certainty,
    }
    if first.certainty is None:
        return Verdict(**figures, text=_abstention_text(grading, first, clock_ns, job_step_ns)), []
    others, overload, waits = [run.ranks[place] for place in trained], None, None
    if first.is_link:
        link = links[first.places[0]]
        verdict = Verdict(cause="link", link=link, text=link_text(link), **figures)
    else:
        others = [run.ranks[place] for place in trained if place not in first.places]
        ranks = tuple(run.ranks[place].rank for place in first.places)
        cause = _cause(run, first, charges, steps, work, skipped)
        if cause in _COMPUTING and len(ranks) == 1:
            overload = _reason(overloaded.get(ranks[0]), size_ns)
            cause = cause if overload is None else "more_work"
        host = _host_of(run, ranks)
        if len(ranks) == 1:
            waits = waits_for(run, arrivals, first.places[0], steps)
        slow = [run.ranks[place] for place in first.places]
        share_of_compute = _longer_share(slow, others, steps)
        text = rank_text(ranks, host, cause, size_ns / job_step_ns, share_of_compute, len(others), overload)
        if len(steps) == 1 and waits is not None and overload is None:
            text = text_of_one_step(text, waits)
        several: dict[str, Any] = {"ranks": ranks, "host": host} if len(ranks) > 1 else {"rank": ranks[0]}
        if overload is None and (pause := reason_of_delay(run, ranks, size_ns)) is not None:
            # The section on pauses has a finding about it.
            return Verdict(cause=pause.longest.pause, text=pause.text, **several, **figures), []
        verdict = Verdict(cause=cause, text=text, **several, **figures)
    action = action_text(verdict.concerned, verdict.host, verdict.cause, verdict.link, overload is not None, run.device)
    if verdict.certainty == "likely":
        action += f"; {until_sure(len(steps), missing)}"
    waiting_ns = _mean_ns(others, steps, "exposed_comm_ns")
    saving_ns = min(size_ns, waiting_ns)
    if saving_ns < NOTABLE_SAVING * step_ns:
        return verdict, []
    evidence = {
        "cause": verdict.cause,
        "excess_ns": int(size_ns),
        "noise_ns": int(grading.noise_ns(first.evidence)),
        "clock_ns": clock_ns,
        "significance_ns": int(first.significance_ns),
        "persistence": first.evidence.persistence,
        "peers_compute_ns": int(_mean_ns(others, steps, "compute_ns")),
        "peers_exposed_comm_ns": int(waiting_ns),
        **({"others_wait_ns": waits.mean_ns, "longest_wait": asdict(waits.longest)} if waits is not None else {}),
        **({"ranks": list(verdict.ranks)} if verdict.ranks else {}),
        **({"expert_load": overload.ratio, "expert_load_estimated": overload.estimated} if overload else {}),
        **({"host": verdict.host} if verdict.host is not None else {}),
    }
    finding = Finding(
        severity="info" if verdict.link is not None and verdict.link.may_be_slower_by_nature else "warning",
        rank=verdict.rank,
        text=verdict.text,
        saving_ns=int(saving_ns),
        certainty=verdict.certainty or "likely",
        cause=verdict.cause,
        time_ns=int(size_ns),
        action=action,
        evidence=evidence,
        remedy="link" if verdict.link is not None else "ranks" if overload is None else "load",
        ranks=verdict.concerned,
    )
    return verdict, [finding]


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


def _step_ns(run: Run, steps: Sequence[int]) -> float:
    return max(_mean_ns([summary], steps, "step_ns") for summary in run.ranks if summary.is_measured)


def _longer_share(slow: Sequence[RankSummary], others: Sequence[RankSummary], steps: Sequence[int]) -> float | None:
    """Return how much longer slow ranks compute than the others, as a share; None if it tells little."""
    slow_ns, others_ns = (_mean_ns(ranks, steps, "compute_ns") for ranks in (slow, others))
    return slow_ns / others_ns - 1 if others_ns < slow_ns <= _MOST_COMPUTE * others_ns else None


def _mean_ns(ranks: Sequence[RankSummary], steps: Sequence[int], part: str) -> float:
    """Return the mean over the steps of the median over the ranks of a part of the step."""
    wanted = frozenset(steps)
    by_step: dict[int, list[int]] = {}
    for summary in ranks:
        for step in summary.steps:
            if step.step in wanted:
                by_step.setdefault(step.step, []).append(getattr(step, part))
    return statistics.fmean(statistics.median(values) for values in by_step.values()) if by_step else 0.0


# ---- causes and texts -----------------------------------------------------------------------------------------------
def cause_of(run: Run, place: int, charges: CausedDelays, steps: Sequence[int]) -> str | None:
    """Return the cause of most of a rank's delay; if no part of it has a known cause, the one that its steps show.

    Before a message only the delay is known, not its cause.
    """
    *known, unknown_ns = charges.causes_ns[place].tolist()
    if not any(known) and unknown_ns:
        known = _excess_by_cause(run, place, steps)
    largest = max(known)
    return CAUSES[known.index(largest)] if largest > 0 else None


def _cause(
    run: Run, first: Candidate, charges: CausedDelays, steps: Sequence[int], work: WorkTimes | None, skipped: int
) -> str | None:
    """Return the cause of a candidate's delay: of what is attributed to it, unless the work of ranks tells more."""
    *known, unknown_ns = charges.causes_ns[first.places[0]].tolist()
    is_compared = work is not None and set(first.places) <= set(work.places)
    if work is not None and is_compared and (first.by_work or unknown_ns > sum(known)):
        return work.cause(first.places, skipped)
    cause = cause_of(run, first.places[0], charges, steps)
    if cause == "more_work" and work is not None and is_compared and not work.may_be_more_work(first.places, skipped):
        return "compute"
    return cause


def _reason(overload: Overload | None, delay_ns: float) -> Overload | None:
    """Return the load of a rank's experts if it is the reason for a delay in which the rank computes longer."""
    if overload is None or overload.longer_ns is None:
        return overload
    return overload if overload.longer_ns >= _EXPLAINED * delay_ns else None


def _excess_by_cause(run: Run, place: int, steps: Sequence[int]) -> list[float]:
    """Return by how much a rank's steps exceed those of the ranks that it shares groups with, by `CAUSES`."""
    this = run.ranks[place]
    mates = {rank for matched in run.collectives if this.rank in matched.ranks for rank in matched.ranks.tolist()}
    others = [s for s in run.ranks if s.rank in mates and s.rank != this.rank] or [
        s for s in run.ranks if s.rank != this.rank
    ]
    beyond = {part: _mean_ns([this], steps, part) - _mean_ns(others, steps, part) for part in ("compute_ns", "idle_ns")}
    return [beyond["compute_ns"], 0.0, beyond["idle_ns"], 0.0]


def _abstention_text(grading: Grading, first: Candidate, clock_ns: int, job_step_ns: int) -> str:
    size_ns = first.evidence.size_ns
    if size_ns <= 0 and clock_ns >= NOTABLE_SAVING * grading.step_ns:
        return f"no rank is named: times of different ranks can be compared to {clock_ns / 1e6:.2f} ms only"
    if size_ns <= 0:
        return "no rank is named: none is late more than the others"
    reasons: dict[Lack, str] = {
        "size": f"{size_ns / job_step_ns:.1%} of a step",
        "significance": f"not significant (below {first.significance_ns / 1e6:.2f} ms)",
        "another step": "which may be chance in one step",
        "persistence": f"in {first.evidence.persistence:.0%} of the steps only",
        "distance": "and others cause nearly as much",
    }
    reason = reasons[grading.lacks(first.evidence, "likely") or "significance"]
    return f"no rank is named: the most that one causes is {size_ns / 1e6:.2f} ms in the median step, {reason}"


def rank_text(
    ranks: Sequence[int],
    host: str | None,
    cause: str | None,
    share_of_step: float,
    share_of_compute: float | None,
    peers: int,
    overload: Overload | None = None,
) -> str:
    """Return what slow ranks do longer than their peers, and by how much.

    host: the machine whose ranks these are, if it has no others. share_of_compute: of how long the peers compute, if
    that is known. peers: how many ranks wait for them. overload: the load of the rank's experts, if it computes longer
    for them.
    """
    who, s = _name(ranks, host), "s" if len(ranks) == 1 else ""
    its, them = ("its", "it") if len(ranks) == 1 else ("their", "them")
    whom = f"{its} peer, which waits for {them}" if peers == 1 else f"{its} peers, which wait for {them}"
    step = f"{share_of_step:.0%} of the step"
    if cause == "host":
        return f"{who} spend{s} {step} longer between operations than {whom}"
    if cause == "data":
        return f"{who} load{s} data for {step} longer than {whom}"
    longer = step if share_of_compute is None else f"{share_of_compute:.0%}"
    more = f"{who} compute{s} {longer} longer than {whom}"
    if overload is not None:
        estimated = " (estimated)" if overload.estimated else ""
        return f"{more}: its experts receive {overload.ratio:.2f} times the mean of the others{estimated}"
    return f"{more}: {'it has' if len(ranks) == 1 else 'they have'} more work" if cause == "more_work" else more


def text_of_one_step(text: str, waits: WaitsForRank) -> str:
    """Return what a rank does longer in the only step, and how long others wait for it, from a text of `rank_text`."""
    who, longest = _name([waits.rank], None), waits.longest
    longer = text.partition(", which")[0].removeprefix(f"{who} ")
    most = f"rank {longest.rank} {longest.wait_ns / 1e6:.1f} ms in one {longest.kind}"
    return f"others wait {waits.mean_ns / 1e6:.1f} ms for {who} ({most}), which {longer}"


def link_text(link: Link) -> str:
    """Return how much longer than others a slow link takes."""
    verb = "takes" if len(link.ranks) == 2 else "take"
    return f"{_link_name(link)} {verb} {link.slowdown:.1f} times as long {_COMPARED_WITH[link.reference]}"


def action_text(
    ranks: Sequence[int],
    host: str | None,
    cause: str | None,
    link: Link | None = None,
    overload: bool = False,
    device: str = "cpu",
) -> str:
    """Return what to do about slow ranks or a slow link. device: of the run, cpu, gpu or mixed."""
    if link is not None:
        return f"check {_link_name(link)}: placement, cables, other traffic"
    who = _name(ranks, host)
    if overload:
        return f"even out the load of the experts of {who}"
    match cause:
        case "host":
            return f"record {who} with stacks, and move what Python does between operations out of the step"
        case "data":
            return f"load data ahead on {who}: more workers or faster storage"
        case "more_work":
            return f"give {who} as much work as others"
        case _:
            processor = ("GPU" if device == "gpu" else "processor") + "s" * (len(ranks) != 1)
            return f"look at the {processor} of {who}: clock rate, heat, other processes"


def until_sure(steps: int, missing: str | None) -> str:
    """Return what would make a likely verdict sure. missing: what the recording lacks."""
    if missing is not None:
        return f"add {missing} to be sure"
    return f"record {max(_LONGER_WINDOW, 2 * steps)} steps to be sure"


def _name(ranks: Sequence[int], host: str | None) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {format_ranges(ranks)}" if host is None else f"all ranks of host {host} ({format_ranges(ranks)})"


def _link_name(link: Link) -> str:
    if link.directed:
        return f"the link from rank {link.ranks[0]} to rank {link.ranks[1]}"
    if len(link.ranks) == 2:
        return f"the link between ranks {link.ranks[0]} and {link.ranks[1]}"
    return f"the links between ranks {format_ranges(link.ranks)}"
