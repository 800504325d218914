"""Latency and bandwidth of transfers, fitted to how long transfers of several sizes took."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["LatencyBandwidth", "fit_latency_bandwidth"]

_INDEPENDENT = 1e-4  # with less, latencies and bytes are proportional, and cannot be told apart


@dataclass(frozen=True, kw_only=True)
class LatencyBandwidth:
    """A line: `latencies * latency_ns + size_bytes * ns_per_byte` is how long transfers take.

    Attributes:
        latency_ns: may be negative.
        ns_per_byte: may be negative.
        latency_error_ns: standard error of the latency for the errors that were given; infinity where latency and
            bandwidth cannot be told apart.
        misfit: mean square of the deviations from the line, in units of the errors that were given.
    """

    latency_ns: float
    ns_per_byte: float
    latency_error_ns: float
    misfit: float


def fit_latency_bandwidth(
    size_bytes: ArrayLike, time_ns: ArrayLike, *, error_ns: ArrayLike = 1.0, latencies: ArrayLike = 1.0
) -> LatencyBandwidth:
    """Return the line of least squares through n transfers, each weighted by its error.

    The arguments are float [n]; one number holds for all. `latencies` says how many latencies a transfer contains.
    """
    time, error = np.asarray(time_ns, dtype=np.float64), np.asarray(error_ns, dtype=np.float64)
    terms = np.stack(np.broadcast_arrays(np.asarray(latencies, float), np.asarray(size_bytes, float)), axis=1)
    terms = terms / np.broadcast_to(error, time.shape)[:, None]
    scale = np.linalg.norm(terms, axis=0)
    solution, _, rank, _ = np.linalg.lstsq(terms / scale, time / error, rcond=_INDEPENDENT)
    deviations = (terms / scale) @ solution - time / error
    latency_error_ns = np.inf
    if rank == 2:
        latency_error_ns = float(np.sqrt(np.linalg.inv((terms / scale).T @ (terms / scale))[0, 0]) / scale[0])
    latency_ns, ns_per_byte = (solution / scale).tolist()
    return LatencyBandwidth(
        latency_ns=latency_ns,
        ns_per_byte=ns_per_byte,
        latency_error_ns=latency_error_ns,
        misfit=float((deviations**2).sum()) / max(len(time) - 2, 1),
    )
