"""Checks of communication by kind: how much of it there is, and how much of it no compute hides."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain

from benchmarks.studies.gpu_jobs.evidence import Evidence
from benchmarks.studies.gpu_jobs.outcome import Check, Outcome, compare_each, right_if
from tests.gpu_jobs.engine import Kernel
from tests.gpu_jobs.intervals import clipped, length, minus
from tracekit.analysis.communication.parts import COMMUNICATION

__all__ = ["CHECKS"]

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
    """How much time each rank is exposed to each kind of communication, by plain arithmetic of intervals.

    The report has a row for each group and phase, and rows may overlap. So the sum of the rows is between the time that
    any of the operations covers and the sum of the times of all.
    """
    compute, by_kind = defaultdict(list), defaultdict(list)
    for kernel in evidence.job.finished.kernels:
        if kernel.activity == "compute":
            compute[kernel.rank].append((kernel.start_ns, kernel.end_ns))
        elif kernel.activity == "comm":
            by_kind[kernel.rank, _kind_of(kernel)].append((kernel.start_ns, kernel.end_ns))
    if not by_kind:
        return None
    seen_ns: dict[tuple[int, str], float] = defaultdict(float)
    for summary in evidence.run.ranks:
        for row in summary[COMMUNICATION]:
            seen_ns[summary.rank, _kind(row.kind)] += row.exposed_ns
    expected = {}
    for key, intervals in by_kind.items():
        steps = evidence.truth.of_rank(key[0])
        window = (min(step.start_ns for step in steps), max(step.end_ns for step in steps))
        exposed = [minus(clipped([one], window), compute[key[0]]) for one in intervals]
        least, most = length(chain.from_iterable(exposed)), sum(map(length, exposed))
        expected[key] = min(max(seen_ns[key], least), most)
    within = {key: _rounding_ns(evidence, key[0]) for key in expected}
    return compare_each(seen_ns, expected, within=within, share=0.01)


def kinds_are_known(evidence: Evidence) -> Outcome | None:
    """How many operations of each kind each rank has."""
    expected: dict[tuple[int, str], int] = defaultdict(int)
    for kernel in _communication(evidence):
        expected[kernel.rank, _kind_of(kernel)] += 1
    if not expected:
        return None
    seen: dict[tuple[int, str], int] = defaultdict(int)
    for summary in evidence.run.ranks:
        for row in summary[COMMUNICATION]:
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
