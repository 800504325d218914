"""One backward pass of DDP, replayed with other buckets: when each reduction would run, and how much of it is exposed.

A bucket is launched when all of its gradients are ready, and those of all earlier buckets. It starts when a thread or
stream is free. The transfer begins a latency after the last rank has started. If the transfer before it ends later, it
begins then.

After its last gradient a rank waits for one bucket after the other, and copies each back to the gradients. These copies
cover part of the remaining transfers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["BackwardPass", "Replayed", "Transfers", "copies_back", "replay", "transfers_at_once"]

_GLOO_THREADS = 2  # of each process group; NCCL has one stream


@dataclass(frozen=True, kw_only=True, eq=False)
class BackwardPass:
    """When the gradients of k ranks and p parameters came.

    Attributes:
        origin_ns: the time that all other times count from, on the run's clock.
        ready_ns: float64 [k, p]; -inf for a gradient that never comes.
        curve_ns: for each rank, points of time float64 [g], ascending.
        compute_ns: for each rank, how long it had computed by each of these points.
        back_ns: float64 [k, p], how long the copy back of each gradient takes.
    """

    origin_ns: float
    ready_ns: np.ndarray
    curve_ns: Sequence[np.ndarray]
    compute_ns: Sequence[np.ndarray]
    back_ns: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Transfers:
    """What transfers take.

    Attributes:
        latency_ns: of each transfer.
        moved_ns: float64 [b], how long the bytes of each bucket take.
        until_ns: float64 [s], ascending, on the run's clock: ends of the measured stretches.
        late_ns: float64 [s], how much longer than expected transfers of each measured stretch took; those replayed at
            that time take as much longer.
        dispatch_ns: from the last gradient to the start.
        in_flight: how many transfers a rank runs at once.
    """

    latency_ns: float
    moved_ns: np.ndarray
    until_ns: np.ndarray
    late_ns: np.ndarray
    dispatch_ns: float
    in_flight: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Replayed:
    """The result for k ranks.

    Attributes:
        uncovered_ns: float64 [k].
        end_ns: float64 [k], when the rank has all gradients back.
    """

    uncovered_ns: np.ndarray
    end_ns: np.ndarray


def transfers_at_once(device: str) -> int:
    """Return how many transfers of a process group a rank on such a device runs at once."""
    return 1 if device == "gpu" else _GLOO_THREADS


def replay(observed: BackwardPass, buckets: Sequence[Sequence[int]], transfers: Transfers) -> Replayed:
    """Return when reductions of these buckets end. `buckets`: places of parameters, in order of launch."""
    launch_ns = np.stack([observed.ready_ns[:, list(members)].max(axis=1) for members in buckets], axis=1)
    begun_ns = np.array([[curve_ns[0]] for curve_ns in observed.curve_ns])
    launch_ns = np.maximum(np.maximum.accumulate(launch_ns, axis=1), begun_ns) + transfers.dispatch_ns
    back_ns = np.stack([observed.back_ns[:, list(members)].sum(axis=1) for members in buckets], axis=1)
    start_ns, end_ns = _run(launch_ns, transfers, transfers.until_ns - observed.origin_ns)
    begin_ns = start_ns.copy()
    begin_ns[:, 1:] = np.maximum(begin_ns[:, 1:], end_ns[:-1])
    uncovered_ns, finish_ns = np.empty(len(launch_ns)), np.empty(len(launch_ns))
    for rank, (curve_ns, compute_ns) in enumerate(zip(observed.curve_ns, observed.compute_ns, strict=True)):
        times_ns, sums_ns = _with_copies_back(curve_ns, compute_ns, end_ns, back_ns[rank])
        covered_ns = np.interp(end_ns, times_ns, sums_ns) - np.interp(begin_ns[rank], times_ns, sums_ns)
        uncovered_ns[rank] = float((end_ns - begin_ns[rank] - covered_ns).sum())
        finish_ns[rank] = float(times_ns[-1])
    return Replayed(uncovered_ns=uncovered_ns, end_ns=finish_ns)


def copies_back(last_ns: float, end_ns: np.ndarray, back_ns: np.ndarray) -> np.ndarray:
    """Return begin and end of the copies of each bucket back to the gradients, float64 [b, 2].

    A rank copies one bucket after the other, each after its end `end_ns[i]` and none before the last gradient at
    `last_ns`. A copy takes `back_ns[i]`.
    """
    result = np.empty((len(end_ns), 2))
    for b in range(len(end_ns)):
        begin_ns = max(last_ns, float(end_ns[b]))
        last_ns = begin_ns + float(back_ns[b])
        result[b] = begin_ns, last_ns
    return result


def _run(launch_ns: np.ndarray, transfers: Transfers, until_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return starts, float64 [k, b], and ends, float64 [b]."""
    start_ns, end_ns, done_ns = launch_ns.copy(), np.empty(launch_ns.shape[1]), -np.inf
    for b in range(launch_ns.shape[1]):
        if b >= transfers.in_flight:
            start_ns[:, b] = np.maximum(launch_ns[:, b], end_ns[b - transfers.in_flight])
        arrived_ns = float(start_ns[:, b].max())
        then = min(int(np.searchsorted(until_ns, arrived_ns, side="right")), len(until_ns) - 1)
        # Other delays, such as a busy core, grow with the number of transfers rather than with their bytes.
        moved_ns = max(float(transfers.moved_ns[b] + transfers.late_ns[then]), 0.0)
        end_ns[b] = done_ns = max(arrived_ns + transfers.latency_ns, done_ns) + moved_ns
    return start_ns, end_ns


def _with_copies_back(
    curve_ns: np.ndarray, compute_ns: np.ndarray, end_ns: np.ndarray, back_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the curve of compute, extended by the copies back of each bucket."""
    times_ns = copies_back(float(curve_ns[-1]), end_ns, back_ns).reshape(-1)
    copied_ns = np.stack((np.cumsum(back_ns) - back_ns, np.cumsum(back_ns)), axis=1).reshape(-1)
    return np.concatenate((curve_ns, times_ns)), np.concatenate((compute_ns, compute_ns[-1] + copied_ns))
