"""Which rank or link holds up the others, by how much a step, and why.

Delays are attributed to the rank that caused them (`delay_attribution`), not to those that passed them on. Several
ranks that are slow together are named together (`slow_ranks`). The verdict names one of the `candidates`, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from tracekit.analysis.finding import Finding
from tracekit.analysis.pauses.pauses import pauses_behind_delays
from tracekit.analysis.pipeline.bubble_causes import MeasuredPipeline
from tracekit.analysis.step_time.step_rates import slow_rates_of_ranks
from tracekit.analysis.stragglers import columns
from tracekit.analysis.stragglers.arrivals.arrivals import Arrivals, arrivals_of
from tracekit.analysis.stragglers.delay_attribution import CausedDelays, attribute_delays, limited_by_waits
from tracekit.analysis.stragglers.pipeline_charges import with_pipeline_delays
from tracekit.analysis.stragglers.slow_transfers import Link, slow_transfers
from tracekit.analysis.stragglers.verdict import Verdict, cause_of, name_culprit
from tracekit.analysis.table import DerivedFrame, Frame, Rows
from tracekit.model.clocks import clocks_are_comparable
from tracekit.model.events import ABSENT
from tracekit.model.run import Run

__all__ = ["Stragglers", "counted_steps", "stragglers"]


def _link_rows(result: Stragglers) -> Rows:
    return [
        {
            "ranks": list(link.ranks),
            "carries_messages": link.carries_messages,
            "directed": link.directed,
            "slowdown": link.slowdown,
            "compared_with": link.reference,
        }
        for link in result.links
    ]


@dataclass(frozen=True, kw_only=True)
class Stragglers:
    """Who holds up whom.

    Attributes:
        verdict: what is named, if anything.
        links: those slower than others that carry the same.
        by_rank: rows of columns.STRAGGLERS.
        slow_links: rows of columns.SLOW_LINKS, the links.
        findings: one if something is named and naming it can save something.
    """

    verdict: Verdict
    links: tuple[Link, ...]
    by_rank: Frame = Frame(columns.STRAGGLERS)
    findings: tuple[Finding, ...]

    slow_links = DerivedFrame(columns.SLOW_LINKS, _link_rows)


def counted_steps(run: Run) -> list[int]:
    """Return the steps that all ranks completed; if there are none, all steps with matched collectives."""
    known = {int(step) for matched in run.collectives for step in np.unique(matched.step).tolist()} - {ABSENT}
    return sorted(run.common_steps() or known)


def stragglers(run: Run, arrivals: Arrivals | None = None, pipelines: Sequence[MeasuredPipeline] = ()) -> Stragglers:
    """Return who holds up whom. No delay is attributed where the clocks of different hosts were not measured.

    arrivals: those of `counted_steps`, if they are known already. pipelines: those of the run.
    """
    counted, steps = counted_steps(run), sorted(run.common_steps())
    arrivals = arrivals_of(run, frozenset(counted)) if arrivals is None else arrivals
    instances = arrivals.instances
    transfers = slow_transfers(run, arrivals)
    charges = attribute_delays(
        instances, transfers.slow_ns, transfers.link, ranks=len(run.ranks), links=len(transfers.links), steps=counted
    )
    charges = limited_by_waits(charges, run, counted)
    charges = with_pipeline_delays(charges, run, pipelines, instances, transfers, counted)
    comparable = _clocks_are_comparable(run)
    if not comparable:
        none = {name: getattr(charges, name) * 0 for name in ("ranks_ns", "causes_ns", "links_ns")}
        charges = CausedDelays(**none)
    late = instances.last_arrival[np.isin(instances.step, np.array(counted, dtype=np.int64))]
    last = np.bincount(late[late != ABSENT], minlength=len(run.ranks))
    count = max(len(counted), 1)
    delays_ns = {summary.rank: charges.ranks_ns[place].sum() / count for place, summary in enumerate(run.ranks)}
    pauses = pauses_behind_delays(run, delays_ns)
    rows: list[dict[str, object]] = [
        {
            "rank": summary.rank,
            "caused_delay_ns": int(charges.ranks_ns[place].sum()) // count,
            "wait_ns": int(arrivals.wait_ns[place]) // count,
            "last_arrivals": int(last[place]),
            "arrivals": int(arrivals.arrivals[place]),
            "cause": pauses.get(summary.rank) or cause_of(run, place, charges, counted),
        }
        for place, summary in enumerate(run.ranks)
        if summary.is_measured
    ]
    verdict, findings = name_culprit(run, arrivals, charges, transfers.links, steps, comparable=comparable)
    if run.ranks_are_independent and "rpc" not in run.strategies:  # of remote calls another section knows
        findings += slow_rates_of_ranks(run)
    return Stragglers(verdict=verdict, links=transfers.links, by_rank=rows, findings=tuple(findings))


def _clocks_are_comparable(run: Run) -> bool:
    """Return whether the clocks of all ranks that take part in matched communication can be compared."""
    matched = {rank for group in run.collectives for rank in group.ranks.tolist()}
    matched |= {*run.messages.source.tolist(), *run.messages.destination.tolist()}
    taking_part = [s.rank in matched and s.is_measured for s in run.ranks]
    return clocks_are_comparable(list(compress(run.ranks, taking_part)), list(compress(run.clocks, taking_part)))
