"""One backward pass of DDP, replayed with other buckets: when each reduction would run, and how much of it is exposed.

A bucket is launched when all of its gradients are ready, and those of all earlier buckets. It starts when a thread or
stream is free. The transfer begins a latency after the last rank has started. If the transfer before it ends later, it
begins then.

After its last gradient a rank waits for one bucket after the other, and copies each back to the gradients. These copies
cover part of the remaining transfers.

The parameters of a bucket follow from the limit of its size. DDP fills one bucket for each data type, in the order in
which gradients came in its first iteration. It closes a bucket as soon as its size reaches the limit. Incomplete
buckets follow at the end. With `find_unused_parameters` it does not rebuild its buckets: it fills them in the order of
the parameters, and reduces the last one first. (torch/csrc/distributed/c10d/reducer.cpp,
`compute_bucket_assignment_by_size` and `rebuild_buckets`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.model.metadata import DdpModule
from tracekit.rank.communication_rules import bytes_per_element

_GLOO_THREADS = 2  # of each process group; NCCL has one stream

_DEFAULT_FIRST_BYTES, _DEFAULT_CAP_BYTES = 1 << 20, 25 << 20


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
        until_ns: float64 [s], ascending, on the run's clock: ends of the measured busy periods.
        late_ns: float64 [s], how much longer than expected transfers of each measured busy period took; those replayed
            at that time take as much longer.
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
    """Return when reductions of these buckets end. `buckets`: indexes of parameters, in order of launch."""
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


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters of one module, one bucket after the other.

    Attributes:
        buckets: the present ones, each as indexes in the list of parameters.
    """

    size_bytes: tuple[int, ...]
    dtypes: tuple[str, ...]
    buckets: tuple[tuple[int, ...], ...]
    rebuilt: bool


def parameters_of(module: DdpModule, elements: Sequence[int] = ()) -> Parameters | None:
    """Return the parameters of a module; None where their sizes are not known.

    `elements`: of the gradients in order, for a bucket map without sizes.
    """
    sizes: list[int] = []
    dtypes: list[str] = []
    buckets: list[tuple[int, ...]] = []
    rest = list(elements)
    for bucket in module.buckets:
        width = bytes_per_element(bucket.dtype) or 1
        counts = list(bucket.elements)
        while not counts or sum(counts) * width < bucket.size_bytes:
            if bucket.elements or not rest:
                return None
            counts.append(rest.pop(0))
        buckets.append(tuple(range(len(sizes), len(sizes) + len(counts))))
        sizes += [count * width for count in counts]
        dtypes += [bucket.dtype] * len(counts)
    return Parameters(
        size_bytes=tuple(sizes),
        dtypes=tuple(dtypes),
        buckets=tuple(buckets),
        rebuilt=module.rebuilt or not module.find_unused,
    )


def assigned_buckets(parameters: Parameters, cap_bytes: int) -> tuple[tuple[int, ...], ...]:
    """Return the buckets, in order of launch, that an explicit `bucket_cap_mb` of `cap_bytes` makes."""
    if parameters.rebuilt:
        return _filled(parameters, range(len(parameters.size_bytes)), cap_bytes, cap_bytes)
    in_order = [index for bucket in reversed(parameters.buckets) for index in bucket]
    return tuple(reversed(_filled(parameters, in_order, cap_bytes, cap_bytes)))


def default_buckets(parameters: Parameters) -> tuple[tuple[int, ...], ...]:
    """Return the buckets that DDP makes by default: a small one first, so that reducing begins early."""
    return _filled(parameters, range(len(parameters.size_bytes)), _DEFAULT_FIRST_BYTES, _DEFAULT_CAP_BYTES)


def _filled(
    parameters: Parameters, order: Sequence[int], first_bytes: int, cap_bytes: int
) -> tuple[tuple[int, ...], ...]:
    """Return buckets that are closed at a size: the first of each data type at another one."""
    limits: dict[str, int] = {}
    closed: list[tuple[int, ...]] = []
    members: dict[str, list[int]] = {}
    filled_bytes: dict[str, int] = {}
    for index in order:
        dtype = parameters.dtypes[index]
        members.setdefault(dtype, []).append(index)
        filled_bytes[dtype] = filled_bytes.get(dtype, 0) + parameters.size_bytes[index]
        if filled_bytes[dtype] >= limits.get(dtype, first_bytes):
            closed.append(tuple(members.pop(dtype)))
            filled_bytes[dtype] = 0
            limits[dtype] = cap_bytes
    return (*closed, *(tuple(rest) for rest in members.values()))
