"""Which records of a rank the profiler lost."""

from __future__ import annotations

import random
from dataclasses import dataclass

from benchmarks.gpu_jobs.cluster import FinishedJob
from benchmarks.gpu_jobs.engine import Kernel
from benchmarks.gpu_jobs.host import HostRecord


@dataclass(frozen=True)
class RecordedRank:
    """What is left of a rank's records."""

    host: list[HostRecord]
    kernels: list[Kernel]


def recorded(job: FinishedJob, rank: int) -> RecordedRank:
    """Return the records of a rank without those that are missing."""
    host, kernels = job.ranks[rank].records, job.kernels_of[rank]
    missing = job.spec.missing
    if missing is None or rank not in missing.ranks:
        return RecordedRank(host, kernels)
    if missing.kernels_after is not None:
        last_ns = missing.kernels_after * job.duration_ns
        kernels = [kernel for kernel in kernels if kernel.end_ns <= last_ns]
    if missing.receives:
        rng = random.Random(f"lost {job.spec.seed} {rank}")
        lost = {
            kernel.facts["launch"].facts["correlation"]
            for kernel in kernels
            if kernel.facts.get("comms", {}).get("Collective name") == "recv" and rng.random() < missing.receives
        }
        kernels = [kernel for kernel in kernels if kernel.facts["launch"].facts["correlation"] not in lost]
        host = _without_operators(host, lost)
    return RecordedRank(host, kernels)


def _without_operators(host: list[HostRecord], lost: set[int]) -> list[HostRecord]:
    """Leave out the launches with these correlations, and the operators around them: c10d's, and what it records."""
    ids = {record.facts["External id"] for record in host if record.facts.get("correlation") in lost}
    around = ids | {number - 1 for number in ids} | {number + 1 for number in ids}  # c10d's before, the work after
    return [record for record in host if record.facts.get("External id") not in around]
