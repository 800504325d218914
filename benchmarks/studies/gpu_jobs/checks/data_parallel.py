"""Checks of data parallelism: DDP's buckets, and what FSDP gathers and reduces."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator

from benchmarks.gpu_jobs.engine import Kernel
from benchmarks.gpu_jobs.intervals import length, minus
from benchmarks.studies.gpu_jobs.evidence import Evidence
from benchmarks.studies.gpu_jobs.outcome import Check, Outcome, abstained, compare_each, right_if
from tracekit.model.communication import bus_factor
from tracekit.model.table import rows_of

_ROUNDING_NS = 3_000


def buckets_are_found(evidence: Evidence) -> Outcome | None:
    """DDP's buckets, in the order in which they are reduced, with their sizes."""
    if evidence.spec.family != "ddp":
        return None
    first = min(step.step for step in evidence.truth.steps)
    expected = [op.size_bytes for op in evidence.truth.operations if op.step == first]
    buckets = evidence.report.buckets
    seen = [] if buckets is None else [row["size_bytes"] for row in rows_of(buckets, "bucket_map")]
    return right_if(seen == expected, seen, expected) if seen else abstained(expected)


def exposure_of_buckets(evidence: Evidence) -> Outcome | None:
    """How much of each bucket's reduction no compute covers: the mean over ranks and steps."""
    if evidence.spec.family != "ddp":
        return None
    expected = {}
    for index, kernels in _buckets(evidence):
        expected[index] = statistics.fmean(_exposed_ns(evidence, kernel) for kernel in kernels)
    buckets = evidence.report.buckets
    seen = {} if buckets is None else {r["index"]: float(r["uncovered_ns"]) for r in rows_of(buckets, "by_index")}
    within_ns = _ROUNDING_NS + max(map(evidence.clock_change_ns, range(evidence.spec.ranks))) / evidence.spec.steps
    return compare_each(seen, expected, within=within_ns) if seen else abstained(f"{len(expected)} buckets")


def bandwidth_of_buckets(evidence: Evidence) -> Outcome | None:
    """The bus bandwidth of each bucket's transfer, within 5 %: the median."""
    if evidence.spec.family != "ddp":
        return None
    each: dict[int, list[float]] = defaultdict(list)
    factor = bus_factor("all_reduce", evidence.spec.dp)
    for op in evidence.truth.operations:
        each[op.sequence % evidence.spec.buckets].append(op.size_bytes / op.transfer_ns * 1e9 * factor)
    expected = {index: statistics.median(values) for index, values in each.items()}
    buckets = evidence.report.buckets
    seen = {} if buckets is None else {r["index"]: r["busbw_bps"] for r in rows_of(buckets, "by_index")}
    return compare_each(seen, expected, within=0.0, share=0.05) if seen else abstained(expected)


def units_of_fsdp(evidence: Evidence) -> Outcome | None:
    """How many collectives each rank has for FSDP's units."""
    if evidence.spec.family != "fsdp":
        return None
    expected: dict[tuple[int, str], int] = defaultdict(int)
    for op in evidence.truth.operations:
        for rank in op.members:
            expected[rank, op.kind] += 1
    fsdp = evidence.report.fsdp
    seen: dict[tuple[int, str], int] = defaultdict(int)
    for row in rows_of(fsdp, "units") if fsdp is not None else ():
        seen[row["rank"], row["kind"]] += row["count"]
    return right_if(seen == expected, dict(seen), dict(expected)) if seen else abstained(dict(expected))


def exposure_of_fsdp(evidence: Evidence) -> Outcome | None:
    """How much time each rank is exposed to FSDP's collectives of each kind."""
    if evidence.spec.family != "fsdp":
        return None
    exposed: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for rank in range(evidence.spec.ranks):
        compute = _compute(evidence, rank)
        for kernel in evidence.job.finished.kernels:
            if kernel.rank == rank and kernel.activity == "comm":
                exposed[rank, kernel.transfers[0].kind] += minus([(kernel.start_ns, kernel.end_ns)], compute)
    expected = {key: float(length(intervals)) for key, intervals in exposed.items()}
    fsdp = evidence.report.fsdp
    seen: dict[tuple[int, str], float] = defaultdict(float)
    for row in rows_of(fsdp, "units") if fsdp is not None else ():
        seen[row["rank"], row["kind"]] += row["exposed_ns"]
    if not seen:
        return abstained(expected)
    within = {key: _ROUNDING_NS * evidence.spec.steps + evidence.clock_change_ns(key[0]) for key in expected}
    return compare_each(seen, expected, within=within, share=0.01)


CHECKS: tuple[Check, ...] = (
    buckets_are_found,
    exposure_of_buckets,
    bandwidth_of_buckets,
    units_of_fsdp,
    exposure_of_fsdp,
)


def _buckets(evidence: Evidence) -> Iterator[tuple[int, list[Kernel]]]:
    """Yield each bucket's place in a backward pass with the kernels of its reductions."""
    every: dict[int, list[Kernel]] = defaultdict(list)
    for transfer in evidence.job.finished.transfers:
        every[transfer.sequence % evidence.spec.buckets] += transfer.kernels.values()
    yield from sorted(every.items())


def _compute(evidence: Evidence, rank: int) -> list[tuple[int, int]]:
    kernels = evidence.job.finished.kernels
    return [(k.start_ns, k.end_ns) for k in kernels if k.rank == rank and k.activity == "compute"]


def _exposed_ns(evidence: Evidence, kernel: Kernel) -> int:
    return length(minus([(kernel.start_ns, kernel.end_ns)], _compute(evidence, kernel.rank)))
