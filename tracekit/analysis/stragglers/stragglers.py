"""Which rank or link holds up the others, by how much a step, and why.

Delays are attributed to the rank that caused them (`delay_attribution`), not to those that passed them on. The verdict
names a rank or link only if the delay that it causes beyond the others

* exceeds the uncertainty of the clocks and the differences between steps,
* shows in nearly every step, and
* is a notable share of the step.

It names none in runs of one step, whose noise is not known.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from tracekit.analysis.stats.leave_one_out import leave_one_out_medians
from tracekit.analysis.stragglers import columns
from tracekit.analysis.stragglers.arrivals import Arrivals, arrivals_of
from tracekit.analysis.stragglers.delay_attribution import CAUSES, CausedDelays, attribute_delays
from tracekit.analysis.stragglers.slow_transfers import Link, slow_transfers
from tracekit.analysis.stragglers.verdict_texts import link_text, rank_text
from tracekit.analysis.table import Frame
from tracekit.model.events import ABSENT
from tracekit.model.run import Finding, Run, clocks_are_comparable
from tracekit.model.summary import RankSummary

__all__ = ["Stragglers", "Verdict", "counted_steps", "stragglers"]

_SIGNIFICANT = 4.0  # standard errors of the mean over steps, and never less than a standard deviation
_NOTABLE = 0.02  # of a step
_PERSISTENT = 0.8  # of the steps; in fewer it is an accident
_OUTLIERS = 5  # one of so many steps is left out, the one farthest from the others
_MANY_STEPS = 4  # with so many the first is left out: what delayed a rank before it, such as loading, was not recorded


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The rank or link that is named. Where none is, the figures are those of the rank or link that comes closest.

    Attributes:
        rank: the rank, None if none or a link is named.
        cause: one of `CAUSES`, "link", or None if none is named.
        link: the link that is named.
        caused_delay_ns: the delay that it causes beyond the others, mean of the steps.
        significance_ns: the delay that would be significant.
        share_of_step: the delay as a share of the step.
        persistence: the share of steps in which it causes a delay.
        text: the verdict in words.
    """

    rank: int | None = None
    cause: str | None = None
    link: Link | None = None
    caused_delay_ns: int = 0
    significance_ns: int | None = None
    share_of_step: float = 0.0
    persistence: float = 0.0
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Stragglers:
    """Who holds up whom.

    Attributes:
        verdict: the rank or link that is named, if any.
        links: those slower than others that carry the same.
        by_rank: rows of columns.STRAGGLERS.
        findings: one if a rank or link is named and naming it can save something.
    """

    verdict: Verdict
    links: tuple[Link, ...]
    by_rank: Frame = Frame(columns.STRAGGLERS)
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """A rank or a slow link that may be named.

    Attributes:
        place: place of the rank in the run's ranks, or of the link in the slow links.
        is_link: whether it is a link.
        series: what it caused in each step beyond what the others did, in ns.
        mean_ns: mean of the series without outliers.
        noise_ns: standard deviation of the series without outliers.
    """

    place: int
    is_link: bool
    series: Sequence[int]
    mean_ns: float
    noise_ns: float

    @property
    def significance_ns(self) -> float:
        return self.noise_ns * max(1.0, _SIGNIFICANT / math.sqrt(len(self.series)))

    @property
    def persistence(self) -> float:
        return sum(value > 0 for value in self.series) / len(self.series)


def counted_steps(run: Run) -> list[int]:
    """Return the steps that all ranks completed; if there are none, all steps with matched collectives."""
    known = {int(step) for matched in run.collectives for step in np.unique(matched.step).tolist()} - {ABSENT}
    return sorted(run.common_steps() or known)


def stragglers(run: Run, arrivals: Arrivals | None = None) -> Stragglers:
    """Return who holds up whom. No delay is attributed where the clocks of different hosts were not measured.

    arrivals: those of `counted_steps`, if they are known already.
    """
    counted, steps = counted_steps(run), sorted(run.common_steps())
    arrivals = arrivals_of(run, frozenset(counted)) if arrivals is None else arrivals
    instances = arrivals.instances
    transfers = slow_transfers(run, instances, arrivals.collectives)
    charges = attribute_delays(
        instances, transfers.slow_ns, transfers.link, ranks=len(run.ranks), links=len(transfers.links), steps=counted
    )
    comparable = _clocks_are_comparable(run)
    if not comparable:
        none = {name: getattr(charges, name) * 0 for name in ("ranks_ns", "causes_ns", "links_ns")}
        charges = CausedDelays(**none)
    late = instances.rank[(instances.late_ns > 0) & np.isin(instances.step, np.array(counted, dtype=np.int64))]
    last = np.bincount(late, minlength=len(run.ranks))
    count = max(len(counted), 1)
    rows: list[dict[str, object]] = [
        {
            "rank": summary.rank,
            "caused_delay_ns": int(charges.ranks_ns[place].sum()) // count,
            "wait_ns": int(arrivals.wait_ns[place]) // count,
            "last_arrivals": int(last[place]),
            "arrivals": int(arrivals.arrivals[place]),
            "cause": _cause(run, place, charges, counted),
        }
        for place, summary in enumerate(run.ranks)
        if not summary.serves_only
    ]
    verdict, findings = _verdict(run, charges, transfers.links, steps, comparable=comparable)
    return Stragglers(verdict=verdict, links=transfers.links, by_rank=rows, findings=tuple(findings))


def _clocks_are_comparable(run: Run) -> bool:
    """Return whether the clocks of all ranks that take part in matched communication can be compared."""
    matched = {rank for group in run.collectives for rank in group.ranks.tolist()}
    matched |= {*run.messages.source.tolist(), *run.messages.destination.tolist()}
    taking_part = [s.rank in matched and not s.serves_only for s in run.ranks]
    return clocks_are_comparable(list(compress(run.ranks, taking_part)), list(compress(run.clocks, taking_part)))


# ---- the verdict ----------------------------------------------------------------------------------------------------


def _verdict(
    run: Run, charges: CausedDelays, links: Sequence[Link], steps: Sequence[int], *, comparable: bool
) -> tuple[Verdict, list[Finding]]:
    trained = [place for place, summary in enumerate(run.ranks) if not summary.serves_only]
    reason = None
    if len(trained) < 2:
        reason = "a rank alone holds up nobody"
    elif not comparable:
        reason = "the clocks of different hosts are not known well enough"
    elif len(steps) < 2:
        reason = "one step tells nothing of how much steps differ" if steps else "there is no step that all completed"
    if reason is not None:
        return Verdict(text=f"no rank is named: {reason}"), []
    candidates = _candidates(charges, trained, first=int(len(steps) >= _MANY_STEPS))
    first = max(candidates, key=lambda c: (c.mean_ns, c.is_link, -c.place))
    clock_ns = _clock_error_ns(run)
    step_ns = _step_ns(run, steps)
    significance_ns = max(first.significance_ns, clock_ns)
    figures: dict[str, Any] = {
        "caused_delay_ns": int(first.mean_ns),
        "significance_ns": int(significance_ns),
        "share_of_step": first.mean_ns / max(step_ns, 1),
        "persistence": first.persistence,
    }
    named = first.mean_ns > significance_ns and first.persistence >= _PERSISTENT and first.mean_ns >= _NOTABLE * step_ns
    if not named:
        return Verdict(**figures, text=_abstention_text(first, significance_ns, clock_ns, step_ns)), []
    others = [summary for place, summary in enumerate(run.ranks) if place in trained]
    if first.is_link:
        link = links[first.place]
        text = link_text(link, first.mean_ns, first.mean_ns / step_ns)
        verdict = Verdict(cause="link", link=link, text=text, **figures)
    else:
        rank = run.ranks[first.place].rank
        others = [summary for summary in others if summary.rank != rank]
        cause = _cause(run, first.place, charges, steps)
        text = rank_text(rank, cause, first.mean_ns, step_ns, _mean_ns(others, steps, "compute_ns"), len(others))
        verdict = Verdict(rank=rank, cause=cause, text=text, **figures)
    waiting_ns = _mean_ns(others, steps, "exposed_comm_ns")
    saving_ns = min(first.mean_ns, waiting_ns)
    if saving_ns < _NOTABLE * step_ns:
        return verdict, []
    evidence = {
        "cause": verdict.cause,
        "excess_ns": int(first.mean_ns),
        "noise_ns": int(first.noise_ns),
        "clock_ns": clock_ns,
        "significance_ns": int(significance_ns),
        "persistence": first.persistence,
        "peers_compute_ns": int(_mean_ns(others, steps, "compute_ns")),
        "peers_exposed_comm_ns": int(waiting_ns),
    }
    finding = Finding(
        severity="warning", rank=verdict.rank, text=verdict.text, saving_ns=int(saving_ns), evidence=evidence
    )
    return verdict, [finding]


def _candidates(charges: CausedDelays, trained: Sequence[int], *, first: int) -> list[_Candidate]:
    ranks_ns = charges.ranks_ns[trained].T
    beyond_ns = ranks_ns - leave_one_out_medians(ranks_ns, np.ones_like(ranks_ns, dtype=np.bool_))
    series = [(place, False, delays_ns) for place, delays_ns in zip(trained, beyond_ns.T.tolist(), strict=True)]
    series += [(place, True, delays_ns) for place, delays_ns in enumerate(charges.links_ns.tolist())]
    return [_candidate(place, is_link, delays_ns[first:]) for place, is_link, delays_ns in series]


def _candidate(place: int, is_link: bool, series: Sequence[int]) -> _Candidate:
    middle = statistics.median(series)
    inliers = sorted(series, key=lambda value: abs(value - middle))[: len(series) - len(series) // _OUTLIERS]
    mean_ns, noise_ns = statistics.fmean(inliers), statistics.stdev(inliers)
    return _Candidate(place=place, is_link=is_link, series=series, mean_ns=mean_ns, noise_ns=noise_ns)


def _clock_error_ns(run: Run) -> int:
    """Return by how much times of two ranks may be off each other."""
    errors = sorted((clock.error_ns or 0 for clock in run.clocks), reverse=True)
    return sum(errors[:2])


def _step_ns(run: Run, steps: Sequence[int]) -> float:
    return max(_mean_ns([summary], steps, "step_ns") for summary in run.ranks if not summary.serves_only)


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


def _cause(run: Run, place: int, charges: CausedDelays, steps: Sequence[int]) -> str | None:
    """Return the cause of most of a rank's delay; if no part of it has a known cause, the one that its steps show.

    Before a message only the delay is known, not its cause.
    """
    *known, unknown_ns = charges.causes_ns[place].tolist()
    if not any(known) and unknown_ns:
        known = _excess_by_cause(run, place, steps)
    largest = max(known)
    return CAUSES[known.index(largest)] if largest > 0 else None


def _excess_by_cause(run: Run, place: int, steps: Sequence[int]) -> list[float]:
    """Return by how much a rank's steps exceed those of the ranks that it shares groups with, by `CAUSES`."""
    this = run.ranks[place]
    mates = {rank for matched in run.collectives if this.rank in matched.ranks for rank in matched.ranks.tolist()}
    others = [s for s in run.ranks if s.rank in mates and s.rank != this.rank] or [
        s for s in run.ranks if s.rank != this.rank
    ]
    beyond = {part: _mean_ns([this], steps, part) - _mean_ns(others, steps, part) for part in ("compute_ns", "idle_ns")}
    return [beyond["compute_ns"], 0.0, beyond["idle_ns"], 0.0]


def _abstention_text(first: _Candidate, significance_ns: float, clock_ns: int, step_ns: float) -> str:
    if first.mean_ns <= 0 and clock_ns >= _NOTABLE * step_ns:
        return f"no rank is named: times of different ranks can be compared to {clock_ns / 1e6:.2f} ms only"
    if first.mean_ns <= 0:
        return "no rank is named: none is late more than the others"
    caused = f"the most that one causes is {first.mean_ns / 1e6:.2f} ms a step"
    if first.mean_ns <= significance_ns:
        return f"no rank is named: {caused}, not significant (below {significance_ns / 1e6:.2f} ms)"
    if first.mean_ns < _NOTABLE * step_ns:
        return f"no rank is named: {caused}, {first.mean_ns / max(step_ns, 1):.1%} of it"
    return f"no rank is named: {caused}, in {first.persistence:.0%} of the steps only"
