"""How late ranks arrive at collectives, how long transfers take, and at what bandwidth.

Compared are the steps that all recorded ranks completed, on the run's clock. A rank arrives when it is ready. The skew
of an instance is the time from the first to the last arrival. A rank's wait is the time from its arrival to the last
one. Both are null where they are below the clocks' uncertainty. A collective is queued from the last arrival until its
transfer begins.

The table has medians and maxima of these times. `collective_distributions` and `lateness_by_step` have more, for
pictures: how the times are spread, and how late each rank comes in each step.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tracekit.explain.communication import tables
from tracekit.explain.communication.slow_messages import transfer_times
from tracekit.findings.communication import slow_host
from tracekit.findings.finding import Finding
from tracekit.findings.thresholds import SLOW_HOST
from tracekit.model.communication import KINDS, MatchedGroup, bus_factor
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import Run, clocks_are_comparable, largest_pair_error_ns
from tracekit.model.table import Frame
from tracekit.stats.grouped import grouped
from tracekit.stats.rows_by_key import rows_by_key

_LinkClass = Literal["host", "network", "mixed"]


@dataclass(frozen=True, kw_only=True)
class CollectiveTimes:
    """The collectives of all groups.

    Attributes:
        table: rows of tables.COLLECTIVES, the most time in transfers and waiting first.
    """

    table: Frame = Frame(tables.COLLECTIVES)
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupTimes:
    """The n instances of one group in which all of its k recorded ranks take part, in steps that may be compared.

    Attributes:
        instance: int64 [n], of each instance in the matched group.
        skew_ns: int64 [n].
        late_ns: int64 [k, n], from the first arrival to each rank's.
        wait_ns: int64 [k, n].
        spun_ns: int64 [k, n], the part of the wait in which the rank's kernel ran already.
        begin_ns: int64 [n], when the transfer began, on the run's clock.
        queued_ns: int64 [n], from the last arrival until then.
        transfer_ns: int64 [n].
        error_ns: uncertainty of differences between two ranks; None where clocks cannot be compared.
    """

    instance: Int64
    skew_ns: Int64
    late_ns: Int64
    wait_ns: Int64
    spun_ns: Int64
    begin_ns: Int64
    queued_ns: Int64
    transfer_ns: Int64
    error_ns: int | None


TimesOfGroup = tuple[MatchedGroup, GroupTimes]
"""A group, and the times of its instances in which all of its ranks take part."""


def group_times(run: Run, matched: MatchedGroup) -> GroupTimes:
    """Return the times of the instances of a group."""
    steps = np.array(sorted(run.common_steps()), dtype=np.int64)
    instance = np.flatnonzero((matched.row != ABSENT).all(axis=0) & np.isin(matched.step, steps))
    members = [run.index_of_rank[rank] for rank in matched.ranks.tolist()]
    shape = (len(members), len(instance))
    arrival_ns, start_ns, end_ns, took_ns = (np.zeros(shape, dtype=np.int64) for _ in range(4))
    for r, member in enumerate(members):
        row, collectives, clock = matched.row[r, instance], run.ranks[member].collectives, run.clocks[member]
        took_ns[r] = collectives.end_ns[row] - collectives.start_ns[row]
        arrival_ns[r] = clock.to_run(collectives.ready_ns[row])
        start_ns[r], end_ns[r] = clock.to_run(collectives.start_ns[row]), clock.to_run(collectives.end_ns[row])
    clocks = [run.clocks[member] for member in members]
    comparable = clocks_are_comparable([run.ranks[member] for member in members], clocks)
    error_ns = largest_pair_error_ns(clocks) if comparable else None
    last_ns, begin_ns = arrival_ns.max(axis=0), start_ns.max(axis=0)
    late_ns = arrival_ns - arrival_ns.min(axis=0)
    held = end_ns + (error_ns or 0) >= last_ns  # ranks that only send or receive may leave before the last arrives
    everyone = np.ones(shape, dtype=np.bool_)
    return GroupTimes(
        instance=instance,
        skew_ns=late_ns.max(axis=0),
        late_ns=late_ns,
        wait_ns=np.where(held, last_ns - arrival_ns, 0),
        spun_ns=np.where(held, np.maximum(last_ns - start_ns, 0), 0),
        begin_ns=begin_ns,
        queued_ns=begin_ns - last_ns,
        transfer_ns=transfer_times(start_ns, end_ns, took_ns, matched.kind[instance], everyone, error_ns),
        error_ns=error_ns,
    )


def groups_with_matches(run: Run) -> list[MatchedGroup]:
    """Return the groups in which at least two recorded ranks take part."""
    groups = [_without_silent(matched) for matched in run.collectives]
    return [matched for matched in groups if len(matched.ranks) > 1]


def collective_times(run: Run) -> CollectiveTimes:
    """Return the table over all groups with at least two recorded ranks, and findings about slow transfers."""
    rows = [row for matched in groups_with_matches(run) for row in _rows(run, matched)]
    rows.sort(key=lambda row: (-row.weight_ns, row.group, row.kind, row.size_bytes or 0))
    return CollectiveTimes(
        table=[row.as_dict() for row in rows],
        findings=tuple(_slow_groups(run, rows)),
    )


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One kind and size of one group. Times below the clocks' uncertainty are None."""

    group: int
    kind: str
    count: int
    size_bytes: int | None
    matched_by: str
    ranks: tuple[int, ...]
    members: int
    link: _LinkClass | None
    skew_p50_ns: int | None
    skew_max_ns: int | None
    wait_mean_ns: int | None
    queued_p50_ns: int | None
    transfer_p50_ns: int
    error_ns: int | None

    @property
    def weight_ns(self) -> int:
        return self.count * (self.transfer_p50_ns + (self.wait_mean_ns or 0))

    @property
    def algbw_bps(self) -> float | None:
        return None if not self.size_bytes or not self.transfer_p50_ns else self.size_bytes / self.transfer_p50_ns * 1e9

    def as_dict(self) -> dict[str, object]:
        algbw_bps = self.algbw_bps
        busbw_bps = None if algbw_bps is None else algbw_bps * bus_factor(self.kind, self.members)
        significant = self.skew_max_ns is not None
        return tables.COLLECTIVES.row(self, ranks=len(self.ranks), busbw_bps=busbw_bps, significant=significant)


def _without_silent(matched: MatchedGroup) -> MatchedGroup:
    """Leave out ranks none of whose collectives has a match: no instance would have all ranks."""
    takes_part = (matched.row != ABSENT).any(axis=1)
    return replace(matched, ranks=matched.ranks[takes_part], row=matched.row[takes_part])


def _rows(run: Run, matched: MatchedGroup) -> Iterator[_Row]:
    times = group_times(run, matched)
    ranks = tuple(matched.ranks.tolist())
    where = _link_class(run, ranks)
    for alike in collective_distributions([(matched, times)]):
        here = alike.instances
        queued_ns = float(np.median(times.queued_ns[here]))  # without a queue 0 on any clock
        members = len(run.groups[matched.group].ranks) or len(ranks)
        yield _Row(
            group=matched.group,
            kind=alike.kind,
            count=len(here),
            size_bytes=alike.size_bytes,
            matched_by=matched.matched_by,
            ranks=ranks,
            members=members,
            link=where,
            skew_p50_ns=_significant(float(np.median(alike.skew_ns)), times.error_ns),
            skew_max_ns=_significant(float(alike.skew_ns.max()), times.error_ns),
            wait_mean_ns=_significant(float(times.wait_ns[:, here].mean()), times.error_ns),
            queued_p50_ns=_significant(queued_ns, times.error_ns) if queued_ns else 0,
            transfer_p50_ns=round(float(np.median(alike.transfer_ns))),
            error_ns=times.error_ns,
        )


def _link_class(run: Run, ranks: Sequence[int]) -> _LinkClass | None:
    """Return whether the ranks share a host, each have a different one, or neither; None where a host is not known."""
    of_ranks = [run.ranks[run.index_of_rank[rank]].machine if rank in run.index_of_rank else None for rank in ranks]
    if None in of_ranks or len(of_ranks) < 2:
        return None
    different = len(set(of_ranks))
    return "host" if different == 1 else "network" if different == len(of_ranks) else "mixed"


def _significant(time_ns: float, error_ns: int | None) -> int | None:
    """Return the time in whole nanoseconds; None below the clocks' uncertainty."""
    return None if error_ns is None or (error_ns and time_ns <= error_ns) else round(time_ns)


# ---- findings -------------------------------------------------------------------------------------------------------
def _slow_groups(run: Run, rows: Sequence[_Row]) -> list[Finding]:
    """Find hosts whose groups all take longer than equal groups on other hosts.

    Groups are equal in kind and size of collectives, number of ranks, and placement on hosts.
    """
    alike = grouped(((row.kind, row.size_bytes, row.members, row.link), row) for row in rows)
    hosts = {summary.rank: summary.machine for summary in run.ranks}
    names = {summary.machine: summary.host or summary.machine for summary in run.ranks}
    slow: dict[str, list[float]] = {}
    quick: set[str | None] = set()
    for same in alike.values():
        if len(same) < 3 or same[0].link is None:  # of two groups it is not known which one is slow
            continue
        for row in same:
            usual_ns = statistics.median(other.transfer_p50_ns for other in same if other is not row)
            if row.transfer_p50_ns > SLOW_HOST * usual_ns:
                for host in sorted({hosts[rank] or "" for rank in row.ranks}):
                    slow.setdefault(host, []).append(row.transfer_p50_ns / max(usual_ns, 1))
            else:
                quick |= {hosts[rank] for rank in row.ranks}
    return [
        slow_host(cause="slow_link", evidence={"host": names[host], "slowdown": slowdown})
        for host, slowdown in sorted((host, statistics.median(times)) for host, times in slow.items())
        if host and host not in quick
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class CollectiveTimesOfSize:
    """The n instances of one kind and size in one group: a row of the table of collectives.

    Attributes:
        size_bytes: of the full array; None where it is not known.
        instances: int64 [n], among those of the group in which all of its ranks take part.
        skew_ns: int64 [n], from the first to the last arrival.
        transfer_ns: int64 [n].
        error_ns: uncertainty of a skew; None where clocks cannot be compared.
    """

    group: int
    kind: str
    size_bytes: int | None
    instances: Int64
    skew_ns: Int64
    transfer_ns: Int64
    error_ns: int | None


def times_of_groups(run: Run) -> list[TimesOfGroup]:
    """Return the times of the collectives of each group with at least two ranks."""
    return [(matched, group_times(run, matched)) for matched in groups_with_matches(run)]


def collective_distributions(groups: Iterable[TimesOfGroup]) -> Iterator[CollectiveTimesOfSize]:
    """Yield the times of each kind and size of collective in each group."""
    for matched, times in groups:
        same = rows_by_key(matched.kind[times.instance], matched.size_bytes[times.instance])
        for (kind, size), here in same.items():
            yield CollectiveTimesOfSize(
                group=matched.group,
                kind=KINDS[kind],
                size_bytes=None if size == ABSENT else size,
                instances=here,
                skew_ns=times.skew_ns[here],
                transfer_ns=times.transfer_ns[here],
                error_ns=times.error_ns,
            )


def lateness_by_step(groups: Iterable[TimesOfGroup]) -> dict[tuple[int, int], int]:
    """Return how late each rank came to the collectives of each step, by rank and step, in ns.

    It is the longest time after the first rank of a collective, over the collectives of the step. What is below the
    uncertainty of the clocks is 0. A rank without collectives in a step, or whose clock cannot be compared, has no
    value.
    """
    latest_ns: dict[tuple[int, int], int] = {}
    for matched, times in groups:
        if times.error_ns is None or not len(times.instance):
            continue
        late_ns = np.where(times.late_ns > times.error_ns, times.late_ns, 0)
        step = matched.step[times.instance]
        order = np.argsort(step, kind="stable")
        numbers, first = np.unique(step[order], return_index=True)
        of_step_ns = np.maximum.reduceat(late_ns[:, order], first, axis=1)
        for rank, of_rank_ns in zip(matched.ranks.tolist(), of_step_ns.tolist(), strict=True):
            for number, value_ns in zip(numbers.tolist(), of_rank_ns, strict=True):
                key = (rank, number)
                latest_ns[key] = max(latest_ns.get(key, 0), value_ns)
    return latest_ns
