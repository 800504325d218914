"""Intervals of launches and communication of one GPU rank, written as one line each. Times are microseconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.explain.whatif.graph.run_communication import Communication
from tracekit.explain.whatif.tables import CUTS, LaunchIntervals
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT


@dataclass(frozen=True, kw_only=True)
class Comm:
    """A collective that its rank was ready for when it was launched."""

    launch_us: int
    end_us: int
    kind: str = "all_reduce"
    group: int = ABSENT
    follows: int = ABSENT
    size_bytes: int = 64


def communication_of(*rows: Comm) -> Communication:
    launch_ns = np.array([1000 * row.launch_us for row in rows], dtype=np.int64)
    end_ns = np.array([1000 * row.end_us for row in rows], dtype=np.int64)
    count = len(rows)
    return Communication(
        ready_ns=launch_ns,
        end_ns=end_ns,
        own_launch_ns=launch_ns,
        own_end_ns=end_ns,
        kind=np.array([KINDS.index(row.kind) for row in rows], dtype=np.int64),  # type: ignore[arg-type]
        size_bytes=np.array([row.size_bytes for row in rows], dtype=np.int64),
        purpose=np.zeros(count, dtype=np.int64),
        uneven=np.zeros(count, dtype=np.bool_),
        spins=np.ones(count, dtype=np.bool_),
        batched=np.zeros(count, dtype=np.bool_),
        sent=np.full(count, ABSENT),
        received=np.full(count, ABSENT),
        estimated=np.zeros(count, dtype=np.bool_),
        members=np.full(count, 2),
        group=np.array([row.group for row in rows], dtype=np.int64),
        network_link=np.zeros(count, dtype=np.int64),
        follows=np.array([row.follows for row in rows], dtype=np.int64),
    )


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A row of `LaunchIntervals`; without `device_us` it has no kernels. device_end_us: when all so far had ended."""

    what: str
    at_us: int
    step: int = 0
    until_us: int | None = None
    device_us: int | None = None
    device_end_us: int = 0
    communication_end_us: int | None = None


def intervals_of(*rows: Cut) -> LaunchIntervals:
    def times_ns(values: list[int | None]) -> np.ndarray:
        return np.array([ABSENT if value is None else 1000 * value for value in values], dtype=np.int64)

    count = len(rows)
    return LaunchIntervals(
        what=np.array([CUTS.index(row.what) for row in rows], dtype=np.int32),
        step=np.array([row.step for row in rows], dtype=np.int64),
        begin_ns=times_ns([row.at_us for row in rows]),
        until_ns=times_ns([row.at_us if row.until_us is None else row.until_us for row in rows]),
        device_ns=times_ns([row.device_us for row in rows]),
        device_end_ns=times_ns([row.device_end_us for row in rows]),
        limit_host_ns=np.full(count, ABSENT),
        limit_device_ns=np.full(count, ABSENT),
        awaited_kernel_ns=np.full(count, ABSENT),
        awaited_communication_ns=np.full(count, ABSENT),
        communication_end_ns=times_ns([row.communication_end_us for row in rows]),
        needs_kernels=np.ones(count, dtype=np.int32),
    )
