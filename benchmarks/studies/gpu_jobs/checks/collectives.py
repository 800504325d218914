"""Checks of collectives: which instances there are, who came when, how long transfers took."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator

import numpy as np

from benchmarks.gpu_jobs import Operation
from benchmarks.gpu_jobs.intervals import length
from benchmarks.studies.gpu_jobs.evidence import Evidence
from benchmarks.studies.gpu_jobs.outcome import Check, Outcome, abstained, compare_each, right_if
from tracekit.explain.communication.collectives import GroupTimes, group_times
from tracekit.model.communication import KINDS, MatchedGroup
from tracekit.model.events import Int64
from tracekit.model.table import rows_of

_ROUNDING_NS = 6_000  # from the launch of a kernel to its start a few microseconds pass, which count as either
_SAME_NS = 1_000  # how far the end of a kernel in a trace may be off the simulated one to be the same
_SHARE = 0.05  # of a transfer
_ENOUGH = 0.98  # of the instances
_ONE_SIZE = frozenset({"all_reduce", "all_gather", "reduce_scatter"})  # kinds whose instances are alike in a group


def collectives_are_matched(evidence: Evidence) -> Outcome | None:
    """Each collective is one instance, with the right kind and members, and nothing else is one."""
    expected = Counter((op.members, op.kind) for op in _operations(evidence))
    if not expected:
        return None
    seen: Counter[tuple[tuple[int, ...], str]] = Counter()
    for group, place, operation in _instances(evidence):
        ranks = tuple(group.ranks[group.row[:, place] >= 0].tolist())
        right = operation is not None and operation.members == ranks
        if len(ranks) > 1:
            seen[ranks if right else (-1,), KINDS[int(group.kind[place])] if right else "mismatched"] += 1
    return right_if(seen == expected, dict(seen), dict(expected))


def waits_for_the_last_rank(evidence: Evidence) -> Outcome | None:
    """How long each rank waits in each collective for the last one to be ready."""
    expected: dict[Hashable, float] = {}
    seen: dict[Hashable, float | None] = {}
    within: dict[Hashable, float] = {}
    for times, column, operation in _timed(evidence):
        for r, (rank, arrival_ns) in enumerate(zip(operation.members, operation.arrival_ns, strict=True)):
            key = (operation.group, operation.members, operation.sequence, rank)
            expected[key] = max(operation.arrival_ns) - arrival_ns
            # The report has none where clocks cannot be compared.
            seen[key] = None if times.error_ns is None else int(times.wait_ns[r, column])
            within[key] = _ROUNDING_NS + (times.error_ns or 0)
    return _compare_all(evidence, seen, expected, within)


def last_arriver(evidence: Evidence) -> Outcome | None:
    """Who comes last to each collective, if the clocks can tell the last two apart."""
    wrong, total, example = 0, 0, None
    for times, column, operation in _timed(evidence):
        last, before = sorted(operation.arrival_ns)[:-3:-1]
        if times.error_ns is None or last - before <= _ROUNDING_NS + times.error_ns:
            continue
        total += 1
        rank = operation.members[int(times.wait_ns[:, column].argmin())]
        if rank != operation.last_arriver:
            wrong += 1
            example = example or f"rank {rank}, not {operation.last_arriver} in {operation.kind} of {operation.group}"
    if not _operations(evidence):
        return None
    return right_if(
        wrong <= (1 - _ENOUGH) * total, f"{wrong} of {total} wrong: {example}" if wrong else f"{total} right", total
    )


def transfer_times(evidence: Evidence) -> Outcome | None:
    """How long each transfer takes, without waiting for ranks and without queueing behind other operations."""
    expected: dict[Hashable, float] = {}
    seen: dict[Hashable, float | None] = {}
    within: dict[Hashable, float] = {}
    for times, column, operation in _timed(evidence):
        key = (operation.group, operation.members, operation.sequence)
        expected[key] = operation.transfer_ns
        seen[key] = int(times.transfer_ns[column])
        within[key] = max(_ROUNDING_NS + (times.error_ns or 0), _SHARE * operation.transfer_ns)
    return _compare_all(evidence, seen, expected, within)


def typical_transfers(evidence: Evidence) -> Outcome | None:
    """The median transfer of each group, kind and size in the report's table."""
    expected = _medians(evidence, "transfer_ns")
    if not expected:
        return None
    seen = _column(evidence, "transfer_p50_ns")
    return compare_each(seen, expected, within=_ROUNDING_NS + _clock_error_ns(evidence), share=_SHARE)


def queued_times(evidence: Evidence) -> Outcome | None:
    """How long transfers queue behind earlier ones of their stream, by group, kind and size: the median."""
    expected = _medians(evidence, "queued_ns")
    if not expected:
        return None
    seen = _column(evidence, "queued_p50_ns")
    return compare_each(seen, expected, within=_ROUNDING_NS + _clock_error_ns(evidence), share=_SHARE)


def waits_of_ranks(evidence: Evidence) -> Outcome | None:
    """How long each rank waits a step for the last rank of any collective, in the table of stragglers."""
    operations = _operations(evidence)
    if not operations:
        return None
    steps = len({step.step for step in evidence.truth.steps})
    waits: dict[int, list[tuple[int, int]]] = {rank: [] for rank in range(evidence.spec.ranks)}
    for op in operations:
        for rank, arrival_ns in zip(op.members, op.arrival_ns, strict=True):
            waits[rank].append((arrival_ns, max(op.arrival_ns)))
    expected = {rank: length(intervals) / steps for rank, intervals in waits.items()}
    error_ns = _ROUNDING_NS + _clock_error_ns(evidence)
    within = {rank: max(error_ns * len(waits[rank]) / steps, 0.05 * wait_ns) for rank, wait_ns in expected.items()}
    rows = rows_of(evidence.report.stragglers, "by_rank")
    if any(row["wait_ns"] is None for row in rows):
        return abstained(expected)
    seen = {row["rank"]: float(row["wait_ns"]) for row in rows}
    return compare_each(seen, expected, within=within)


CHECKS: tuple[Check, ...] = (
    collectives_are_matched,
    waits_for_the_last_rank,
    last_arriver,
    transfer_times,
    typical_transfers,
    queued_times,
    waits_of_ranks,
)


def _operations(evidence: Evidence) -> list[Operation]:
    return [op for op in evidence.truth.operations if len(op.members) > 1]


def _medians(evidence: Evidence, name: str) -> dict[Hashable, float]:
    """Return the median of an attribute of the true operations, by members, kind and size."""
    every: dict[Hashable, list[int]] = defaultdict(list)
    for op in _operations(evidence):
        every[op.members, op.kind, op.size_bytes if op.kind in _ONE_SIZE else None].append(getattr(op, name))
    return {key: statistics.median(values) for key, values in every.items()}


def _column(evidence: Evidence, name: str) -> dict[Hashable, float | None]:
    """Return a column of the report's table of collectives, by members, kind and size.

    Exchanges of tokens differ in size from instance to instance: of their rows this is the median.
    """
    groups = evidence.run.groups
    every: dict[Hashable, list[float]] = defaultdict(list)
    for row in rows_of(evidence.report.collectives, "table"):
        size_bytes = row["size_bytes"] if row["kind"] in _ONE_SIZE else None
        values = every[tuple(groups[row["group"]].ranks), row["kind"], size_bytes]
        values += [row[name]] * row["count"] if row[name] is not None else []
    return {key: statistics.median(values) if values else None for key, values in every.items()}


def _clock_error_ns(evidence: Evidence) -> int:
    return sum(sorted(clock.error_ns or 0 for clock in evidence.run.clocks)[-2:])


def _compare_all(
    evidence: Evidence,
    seen: dict[Hashable, float | None],
    expected: dict[Hashable, float],
    within: dict[Hashable, float],
) -> Outcome | None:
    """Compare instances; wrong too if less than `_ENOUGH` of the true ones are in the report."""
    operations = _operations(evidence)
    if not operations:
        return None
    found = len({key[:3] for key in seen})  # type: ignore[index]
    if found < _ENOUGH * len(operations):
        return right_if(False, f"{found} of {len(operations)} collectives", f"{len(operations)} collectives")
    return compare_each(seen, expected, within=within, enough=_ENOUGH)


def _instances(evidence: Evidence) -> Iterator[tuple[MatchedGroup, int, Operation | None]]:
    """Yield each matched instance, with the true operation whose kernel each of its ranks shows there, if it is one.

    A kernel in which the clock is set back ends no earlier than it starts in the trace.
    """
    kernels: dict[int, list[tuple[int, int]]] = defaultdict(list)
    operations = _operations(evidence)
    for number, op in enumerate(operations):
        for rank, start_ns, end_ns in zip(op.members, op.start_ns, op.end_ns, strict=True):
            shown_end_ns = max(evidence.shown_ns(rank, start_ns), evidence.shown_ns(rank, end_ns))
            kernels[rank].append((shown_end_ns, number))
    of_rank: dict[int, Int64] = {}
    for summary in evidence.run.ranks:
        true = np.array(sorted(kernels[summary.rank]), dtype=np.int64).reshape(-1, 2)
        shown_ns = summary.collectives.end_ns
        right = np.searchsorted(true[:, 0], shown_ns).clip(0, max(len(true) - 1, 0))
        left = (right - 1).clip(0)
        of_rank[summary.rank] = np.full(len(shown_ns), -1)
        for nearest in (left, right) if len(true) else ():
            near = np.abs(true[nearest, 0] - shown_ns) <= _SAME_NS
            of_rank[summary.rank][near] = true[nearest[near], 1]
    for group in evidence.run.collectives:
        numbers = np.stack(
            [
                np.where(row >= 0, of_rank[rank][row], -2) if len(of_rank[rank]) else np.full(len(row), -2)
                for rank, row in zip(group.ranks.tolist(), group.row, strict=True)
            ]
        )
        for place in range(group.row.shape[1]):
            different = set(numbers[:, place].tolist()) - {-2}
            number = different.pop() if len(different) == 1 else -1
            yield group, place, operations[number] if number >= 0 else None


def _timed(evidence: Evidence) -> Iterator[tuple[GroupTimes, int, Operation]]:
    """Yield the times of each instance of the report that is a true operation on all its members."""
    by_instance = {
        (group.group, place): operation
        for group, place, operation in _instances(evidence)
        if operation is not None and operation.members == tuple(group.ranks[group.row[:, place] >= 0].tolist())
    }
    for group in evidence.run.collectives:
        times = group_times(evidence.run, group)
        for column, place in enumerate(times.instance.tolist()):
            operation = by_instance.get((group.group, place))
            if operation is not None and len(operation.members) == len(group.ranks):
                yield times, column, operation
