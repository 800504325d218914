"""Which rank or link holds up the others, by how much a step, and why.

Delays are attributed to the rank that caused them (`delay_attribution`), not to those that passed them on. Several
ranks that are slow together are named together (`slow_ranks`). The verdict names one of the `candidates`, or none.

In a pipeline, late hosts, data loading and slow links cost time besides what collectives show. A delay of one rank
reaches the others through messages, and part of it falls into their bubbles. So it is taken from a replay of the
pipeline (`pipeline.uneven_stage`). Collectives of the same rank may show the same delay; the larger one counts. Of a
slow link between stages the replay counts: slow messages that release a rank may end in a bubble. Slow collectives
within a stage, such as those of tensor parallelism, make its actions longer, or the transfers after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np

from tracekit.explain.kernels.by_name import OPERATOR_TIMES
from tracekit.explain.model_parallel.tables import EXPERT_EXCHANGES
from tracekit.explain.pauses.pauses import pauses_behind_delays
from tracekit.explain.pauses.tables import PAUSE_TIMES
from tracekit.explain.pipeline.bubble_causes import MeasuredPipeline
from tracekit.explain.pipeline.bubbles import pipeline
from tracekit.explain.pipeline.tables import ACTIONS
from tracekit.explain.pipeline.uneven_stage import SlowStageLink, gaps_before_ns, pipeline_delays, replay_with_less
from tracekit.explain.section import AnalysisInput, Section, Unavailable
from tracekit.explain.step_time.step_rates import slow_rates_of_ranks
from tracekit.explain.step_time.tables import IDLE_SUMS
from tracekit.explain.stragglers.arrivals import Arrivals, arrivals_of
from tracekit.explain.stragglers.clock_rates import CLOCK_RATES, clock_rates
from tracekit.explain.stragglers.collective_instances import CollectiveInstances
from tracekit.explain.stragglers.delay_attribution import CAUSES, CausedDelays, attribute_delays, limited_by_waits
from tracekit.explain.stragglers.host_causes import HOST_TIMES, host_times
from tracekit.explain.stragglers.slow_transfers import SlowNetworkLink, SlowTransfers, slow_transfers
from tracekit.explain.stragglers.verdict import Verdict, cause_of, name_culprit
from tracekit.findings.finding import Finding
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import Run, clocks_are_comparable
from tracekit.model.table import RANK, Column, DerivedFrame, Display, Frame, Table

_HOST, _DATA = CAUSES.index("host"), CAUSES.index("data")

_NULL = " Null: clocks cannot be compared."

STRAGGLERS = Table(
    "stragglers",
    (
        RANK,
        Column("caused_delay_ns", "int?", "ns", "Mean delay a step of its own making, not passed on." + _NULL),
        Column("wait_ns", "int?", "ns", "Mean time a step in which it waited for the last of a collective." + _NULL),
        Column("last_arrivals", "int?", "", "Collectives to which it came last, beyond clocks' errors." + _NULL),
        Column("arrivals", "int", "", "Collectives that were matched over ranks."),
        Column("cause", "str?", "", "Of most of the delay: compute, more_work, host or data.", form="words", null=""),
    ),
    Display(
        "Who holds up the others in collectives (ms a step)",
        "rank | delay caused=caused_delay_ns | by=cause | came last={last_arrivals} of {arrivals} | waited=wait_ns",
        most=4,
        bars="delay caused=caused_delay_ns | waited=wait_ns",
    ),
)
SLOW_LINKS = Table(
    "slow_links",
    (
        Column("ranks", "list[int]", "", "Those of the group, or the source and the destination of messages."),
        Column("carries_messages", "bool", "", "Whether it carries messages, and not collectives of the group."),
        Column("directed", "bool", "", "Whether it is slow from the first of the ranks to the second, and not back."),
        Column("slowdown", "float", "ratio", "How many times as long as on other links its transfers take."),
        Column("compared_with", "str", "", "What it is compared with."),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Stragglers:
    """Who holds up whom.

    Attributes:
        verdict: what is named, if anything.
        links: those slower than others that carry the same.
        by_rank: rows of STRAGGLERS.
        slow_links: rows of SLOW_LINKS, the links.
        findings: one if something is named and naming it can save something.
    """

    verdict: Verdict
    links: tuple[SlowNetworkLink, ...]
    by_rank: Frame = Frame(STRAGGLERS)
    findings: tuple[Finding, ...]

    slow_links = DerivedFrame(
        SLOW_LINKS, lambda result: [SLOW_LINKS.row(link, compared_with=link.reference) for link in result.links]
    )


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
    delays_ns = {
        summary.rank: charges.ranks_ns[rank_index].sum() / count for rank_index, summary in enumerate(run.ranks)
    }
    pauses = pauses_behind_delays(run, delays_ns)
    rows: list[dict[str, object]] = [
        {
            "rank": summary.rank,
            "caused_delay_ns": int(charges.ranks_ns[rank_index].sum()) // count if comparable else None,
            "wait_ns": int(arrivals.wait_ns[rank_index]) // count if comparable else None,
            "last_arrivals": int(last[rank_index]) if comparable else None,
            "arrivals": int(arrivals.arrivals[rank_index]),
            "cause": pauses.get(summary.rank) or cause_of(run, rank_index, charges, counted),
        }
        for rank_index, summary in enumerate(run.ranks)
        if summary.is_measured
    ]
    verdict, findings = name_culprit(run, arrivals, charges, transfers.links, steps, comparable=comparable)
    if run.ranks_are_independent and "rpc" not in run.strategies and not run.message_servers:
        # Other sections know those that wait for servers.
        findings += slow_rates_of_ranks(run)
    return Stragglers(verdict=verdict, links=transfers.links, by_rank=rows, findings=tuple(findings))


def _clocks_are_comparable(run: Run) -> bool:
    """Return whether the clocks of all ranks that take part in matched communication can be compared."""
    matched = {rank for group in run.collectives for rank in group.ranks.tolist()}
    matched |= {*run.messages.source.tolist(), *run.messages.destination.tolist()}
    taking_part = [s.rank in matched and s.is_measured for s in run.ranks]
    return clocks_are_comparable(list(compress(run.ranks, taking_part)), list(compress(run.clocks, taking_part)))


def with_pipeline_delays(
    charges: CausedDelays,
    run: Run,
    pipelines: Sequence[MeasuredPipeline],
    instances: CollectiveInstances,
    transfers: SlowTransfers,
    steps: Sequence[int],
) -> CausedDelays:
    """Return the delays with those of pipelines. transfers: the slow ones of `instances`. steps: those of `charges`."""
    links = transfers.links
    ranks_ns, causes_ns, links_ns = charges.ranks_ns.copy(), charges.causes_ns.copy(), charges.links_ns.copy()
    for measured in pipelines:
        inside = [i for i, link in enumerate(links) if link.carries_messages and _has_edges(measured, link.ranks)]
        slow = [SlowStageLink(ranks=links[i].ranks, slowdown=links[i].slowdown) for i in inside]
        delays = pipeline_delays(measured, slow)
        column = np.searchsorted(steps, delays.steps)
        for i, added_ns in zip(inside, delays.links_ns, strict=True):
            links_ns[i, column] = added_ns
        for i, link in enumerate(links):
            if i not in inside and set(link.ranks) & set(measured.ranks):
                slow_rows = np.flatnonzero(transfers.link == i)
                times_ns = (instances.begin_ns[slow_rows], transfers.slow_ns[slow_rows])
                added_ns = _within_stages(measured, link.ranks, *times_ns)
                if added_ns.sum() > links_ns[i].sum():
                    links_ns[i] = 0
                    links_ns[i, column] = added_ns
        for rank, host_ns, data_ns in zip(measured.ranks, delays.host_ns, delays.data_ns, strict=True):
            member, of_rank_ns = run.index_of_rank[rank], host_ns + data_ns
            if of_rank_ns.sum() > ranks_ns[member].sum():
                ranks_ns[member] = 0
                ranks_ns[member, column] = of_rank_ns
                causes_ns[member] = 0
                causes_ns[member, [_HOST, _DATA]] = host_ns.sum(), data_ns.sum()
    return replace(charges, ranks_ns=ranks_ns, causes_ns=causes_ns, links_ns=links_ns)


def _has_edges(measured: MeasuredPipeline, ranks: Sequence[int]) -> bool:
    """Return whether results of actions go from one of these ranks to another."""
    members = np.flatnonzero(np.isin(measured.ranks, ranks))
    return any(
        np.isin([order.rank[edges.producers], order.rank[edges.consumers]], members).all(axis=0).any()
        for order, edges in zip(measured.action_orders, measured.edges, strict=True)
    )


def _within_stages(measured: MeasuredPipeline, ranks: Sequence[int], begin_ns: Int64, slow_ns: Int64) -> Int64:
    """Return by how much steps are longer, int64 [k], because collectives of some ranks were slow.

    begin_ns: when each transfer began, int64 [m], on the run's clock. slow_ns: by how much it took too long, int64 [m].
    """
    by_time = np.argsort(begin_ns, kind="stable")
    begin_ns, total_ns = begin_ns[by_time], np.append(0, np.cumsum(slow_ns[by_time]))

    def between(since_ns: Int64, until_ns: Int64) -> Int64:
        """Return by how much the transfers that began within each period took too long, in the shape of the periods."""
        since, until = np.searchsorted(begin_ns, since_ns), np.searchsorted(begin_ns, until_ns)
        return np.asarray(total_ns[np.maximum(until, since)] - total_ns[since])

    members = np.flatnonzero(np.isin(measured.ranks, ranks))
    less_ns, numbers = [], []
    for order, edges, transfers in zip(measured.action_orders, measured.edges, measured.transfers, strict=True):
        here = np.isin(order.rank, members)[:, None]
        gaps_ns = gaps_before_ns(order, edges, transfers)
        work_ns = between(order.start_ns, order.end_ns) + between(order.start_ns - gaps_ns, order.start_ns)
        sides_ns = [
            np.where(after[:, None] >= 0, between(order.end_ns[after], transfers.ended_ns), 0) * here[after]
            for after in (edges.producers, transfers.posted_after)
        ]
        less_ns.append((work_ns * here, np.maximum(*sides_ns)))
        numbers.append(order.steps)
    saved_ns = replay_with_less(measured, less_ns)[1]
    return np.rint(saved_ns[np.argsort(np.concatenate(numbers), kind="stable")]).astype(np.int64)


def arrivals(run: Run) -> Arrivals:
    """Return the arrivals in the steps that count."""

    return arrivals_of(run, frozenset(counted_steps(run)))


def _analyze(given: AnalysisInput) -> Stragglers | Unavailable:

    found = given.once(pipeline)
    measured = () if isinstance(found, Unavailable) else found.measured
    return stragglers(given.run, given.once(arrivals), measured)


STRAGGLERS_SECTION: Section[Stragglers] = Section(
    name="stragglers",
    reads=(ACTIONS, CLOCK_RATES, EXPERT_EXCHANGES, PAUSE_TIMES, HOST_TIMES, IDLE_SUMS, OPERATOR_TIMES),
    keeps={CLOCK_RATES: clock_rates, HOST_TIMES: host_times},
    analyze=_analyze,
    tables=(STRAGGLERS, SLOW_LINKS),
)
