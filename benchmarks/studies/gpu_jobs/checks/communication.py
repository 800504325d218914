"""Checks of communication by kind: how much of it there is, and how much of it no compute hides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from heapq import heappush
from itertools import pairwise

from benchmarks.gpu_jobs.engine import Kernel
from benchmarks.gpu_jobs.intervals import clipped, length, minus
from benchmarks.studies.gpu_jobs.evidence import Evidence
from benchmarks.studies.gpu_jobs.outcome import Check, Outcome, compare_each, right_if
from tracekit.explain.communication.tables import COMMUNICATION_SUMS

_ROUNDING_NS = 3_000
_MESSAGES = frozenset({"send", "recv", "send_recv", "message"})


def communication_is_communication(evidence: Evidence) -> Outcome | None:
    """No kernel that communicates counts as compute, and none that computes as communication."""
    expected: dict[tuple[int, str], int] = defaultdict(int)
    for step in evidence.truth.steps:
        expected[step.rank, "compute"] += step.compute_ns
        expected[step.rank, "communication"] += step.comm_ns
    seen = {}
    for summary in evidence.run.ranks:
        seen[summary.rank, "compute"] = sum(step.compute_ns for step in summary.steps)
        seen[summary.rank, "communication"] = sum(step.comm_ns for step in summary.steps)
    return compare_each(seen, expected, within={key: _rounding_ns(evidence, key[0]) for key in expected})


def exposed_by_kind(evidence: Evidence) -> Outcome | None:
    """How much exposed time is charged to each kind of communication, by plain arithmetic of intervals.

    Each instant is charged to the operation that ends last of those that run then.
    """
    compute, operations = defaultdict(list), defaultdict(list)
    for kernel in evidence.job.finished.kernels:
        if kernel.activity == "compute":
            compute[kernel.rank].append((kernel.start_ns, kernel.end_ns))
        elif kernel.activity == "comm":
            operations[kernel.rank].append((kernel.start_ns, kernel.end_ns, _kind_of(kernel)))
    if not operations:
        return None
    seen_ns: dict[tuple[int, str], float] = defaultdict(float)
    for summary in evidence.run.ranks:
        for row in summary[COMMUNICATION_SUMS]:
            seen_ns[summary.rank, _kind(row.kind)] += row.exposed_ns
    expected: dict[tuple[int, str], float] = {}
    for rank, of_rank in operations.items():
        steps = evidence.truth.of_rank(rank)
        window = (min(step.start_ns for step in steps), max(step.end_ns for step in steps))
        for kind, charged in _charged(of_rank).items():
            expected[rank, kind] = length(minus(clipped(charged, window), compute[rank]))
    within = {key: _rounding_ns(evidence, key[0]) for key in expected}
    return compare_each(seen_ns, expected, within=within, share=0.01)


def _charged(operations: Sequence[tuple[int, int, str]]) -> dict[str, list[tuple[int, int]]]:
    """Return when an operation of each kind is the one of those that run that ends last."""
    charged: dict[str, list[tuple[int, int]]] = {kind: [] for _, _, kind in operations}
    waiting, running = sorted(operations, reverse=True), list[tuple[int, int, str]]()
    edges = sorted({edge for start, end, _ in operations for edge in (start, end)})
    for begin, stop in pairwise(edges):
        while waiting and waiting[-1][0] <= begin:
            start, end, kind = waiting.pop()
            heappush(running, (-end, start, kind))
        if running and -running[0][0] > begin:
            charged[running[0][2]].append((begin, stop))
    return charged


def kinds_are_known(evidence: Evidence) -> Outcome | None:
    """How many operations of each kind each rank has."""
    expected: dict[tuple[int, str], int] = defaultdict(int)
    for kernel in _communication(evidence):
        expected[kernel.rank, _kind_of(kernel)] += 1
    if not expected:
        return None
    seen: dict[tuple[int, str], int] = defaultdict(int)
    for summary in evidence.run.ranks:
        for row in summary[COMMUNICATION_SUMS]:
            seen[summary.rank, _kind(row.kind)] += row.count
    off = sorted(key for key in seen.keys() | expected.keys() if seen[key] != expected[key])
    return right_if(not off, {key: seen[key] for key in off[:3]}, {key: expected[key] for key in off[:3]})


CHECKS: tuple[Check, ...] = (communication_is_communication, exposed_by_kind, kinds_are_known)


def _rounding_ns(evidence: Evidence, rank: int) -> int:
    """Return how far a sum over a rank's steps may be off."""
    return _ROUNDING_NS * evidence.spec.steps + evidence.clock_change_ns(rank)


def _kind(kind: str) -> str:
    """Return a kind, without the direction of messages: kernels of batches have none."""
    return "message" if kind in _MESSAGES else kind


def _kind_of(kernel: Kernel) -> str:
    return _kind(kernel.transfers[0].kind)


def _communication(evidence: Evidence) -> list[Kernel]:
    return [kernel for kernel in evidence.job.finished.kernels if kernel.activity == "comm"]
