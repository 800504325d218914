"""How long transfers, such as the all-reduces of a group, take by their size: a latency and a bandwidth.

Transfers in flight at once share the connections, and a small one waits behind a large one. So the fit is made to busy
periods: times in which the group transfers without a pause. A wave is as many transfers as run at once. A busy period
of b bytes in w waves takes w * latency + b * ns_per_byte.

Transfers take longer while ranks copy gradients back on the processors that the transfers need. Busy periods with such
copies are left out where there are enough others.

Busy periods of equal waves and bytes count by their median, and deviations count relatively: a machine that is busy now
and then makes single busy periods many times as long. The latency is at most the time of the quickest size. It counts
as zero where the sizes differ too little to tell it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from tracekit.model.events import Bool, Int64
from tracekit.model.intervals import Intervals
from tracekit.stats.uncertainty import median_error

_COPYING = 0.05  # share of a busy period, from which on it is one with copies
_ENOUGH = 3  # busy periods without copies, to fit those alone
_APART = 1.5  # ratio of largest to smallest size; closer sizes tell no latency
_LEAST_ERROR = 0.02  # relative, of the median of equal busy periods: the model is not better than this
_INDEPENDENT = 1e-4  # with less, latencies and bytes are proportional, and cannot be told apart


@dataclass(frozen=True, kw_only=True, eq=False)
class BusyPeriods:
    """n busy periods of transfers, in order of time.

    Attributes:
        begin_ns: int64 [n].
        end_ns: int64 [n].
        transfers: how many each has, int64 [n].
        waves: int64 [n].
        size_bytes: sum over the transfers, int64 [n].
        copying_ns: how long a rank copies gradients back, mean over ranks, float64 [n].
        quickest_ns: the median time of the quickest size.
    """

    begin_ns: Int64
    end_ns: Int64
    transfers: Int64
    waves: Int64
    size_bytes: Int64
    copying_ns: np.ndarray
    quickest_ns: float

    def rows(self, which: Bool) -> BusyPeriods:
        """Return the busy periods of a mask, bool [n]."""
        names = ("begin_ns", "end_ns", "transfers", "waves", "size_bytes", "copying_ns")
        return replace(self, **{name: getattr(self, name)[which] for name in names})


@dataclass(frozen=True, kw_only=True)
class TransferFit:
    """The fitted time of a busy period: `waves * latency_ns + size_bytes * ns_per_byte`.

    Attributes:
        latency_error_ns: how far the latency may be off. The bandwidth is then off the other way, so that a typical
            busy period takes as long.
        error_ratio: how far the time of a typical busy period may be off, relatively.
        waves: of the typical busy period.
        size_bytes: of the typical busy period.
    """

    latency_ns: float
    ns_per_byte: float
    latency_error_ns: float
    error_ratio: float
    waves: float
    size_bytes: float

    def late_ns(self, busy_periods: BusyPeriods) -> np.ndarray:
        """Return float64 [n]: how much longer than the fit each busy period took, per transfer."""
        expected_ns = busy_periods.waves * self.latency_ns + busy_periods.size_bytes * self.ns_per_byte
        return np.asarray((busy_periods.end_ns - busy_periods.begin_ns - expected_ns) / busy_periods.transfers)

    def with_latency(self, latency_ns: float) -> TransferFit:
        """Return the fit with another latency, not below zero, and the bandwidth at which the typical busy period takes
        as long.
        """
        latency_ns = max(latency_ns, 0.0)
        usual_ns = self.waves * self.latency_ns + self.size_bytes * self.ns_per_byte
        ns_per_byte = max(usual_ns - self.waves * latency_ns, 0.0) / max(self.size_bytes, 1.0)
        return replace(self, latency_ns=latency_ns, ns_per_byte=ns_per_byte)

    def latency_bounds(self) -> tuple[TransferFit, TransferFit]:
        """Return the fits with the least and the most latency that the error allows."""
        latency_ns, error_ns = self.latency_ns, self.latency_error_ns
        return self.with_latency(latency_ns - error_ns), self.with_latency(latency_ns + error_ns)


def busy_periods_of(
    begin_ns: Int64, end_ns: Int64, size_bytes: Int64, in_flight: int, copies: Sequence[Intervals] = ()
) -> BusyPeriods | None:
    """Return the busy periods of transfers from `begin_ns` to `end_ns` (int64 [n] each); None if no transfer took time.

    `in_flight` says how many transfers run at once. `copies` says when each rank copies gradients back.
    """
    is_transfer = end_ns > begin_ns
    begin_ns, end_ns, size_bytes = begin_ns[is_transfer], end_ns[is_transfer], size_bytes[is_transfer]
    if not len(begin_ns):
        return None
    durations_ns = end_ns - begin_ns
    order = np.argsort(begin_ns, kind="stable")
    reach_ns = np.maximum.accumulate(end_ns[order])
    opens = np.concatenate(([True], begin_ns[order][1:] >= reach_ns[:-1]))
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(opens)) - 1
    period_ns = begin_ns[order][first], reach_ns[last]
    return BusyPeriods(
        begin_ns=begin_ns[order][first],
        end_ns=reach_ns[last],
        transfers=last - first + 1,
        waves=-(-(last - first + 1) // in_flight),
        size_bytes=np.add.reduceat(size_bytes[order], first),
        copying_ns=np.array(
            [rank_copies.covered_ns(*period_ns) for rank_copies in copies] or [np.zeros(len(first), dtype=np.int64)]
        ).mean(axis=0),
        quickest_ns=min(float(np.median(durations_ns[size_bytes == size])) for size in np.unique(size_bytes)),
    )


def fit_transfers(busy_periods: BusyPeriods) -> TransferFit:
    """Return latency and bandwidth, neither below zero. Busy periods with copies are left out where there are enough
    others.
    """
    copying = busy_periods.copying_ns > _COPYING * (busy_periods.end_ns - busy_periods.begin_ns)
    if not copying.any() or (~copying).sum() < _ENOUGH:
        return _latency_and_bandwidth(busy_periods.rows(_usual(busy_periods)))
    free = busy_periods.rows(~copying)
    return _latency_and_bandwidth(free.rows(_usual(free)))


def _usual(busy_periods: BusyPeriods) -> Bool:
    """Return a mask of the typical busy periods.

    These are the single transfers, where most transfers are alone: two came together then because one of them was slow.
    Elsewhere all busy periods are typical.
    """
    alone = busy_periods.transfers == 1
    return alone if 2 * int(alone.sum()) > int(busy_periods.transfers.sum()) else np.ones(len(alone), dtype=np.bool_)


def _latency_and_bandwidth(busy_periods: BusyPeriods) -> TransferFit:
    waves, sizes, medians_ns, errors = _medians(busy_periods)
    line = fit_latency_bandwidth(sizes, medians_ns, error_ns=errors * medians_ns, latencies=waves)
    inflation = max(1.0, line.misfit)
    spread_ns = line.latency_error_ns * math.sqrt(inflation) if sizes.max() >= _APART * sizes.min() else math.inf
    least_ns = float(np.clip(line.latency_ns - spread_ns, 0.0, busy_periods.quickest_ns))
    most_ns = float(np.clip(line.latency_ns + spread_ns, 0.0, busy_periods.quickest_ns))
    weight = 1 / errors**2
    likely_ns = line.latency_ns if spread_ns < line.latency_ns <= most_ns else least_ns
    fit = TransferFit(
        latency_ns=line.latency_ns,
        ns_per_byte=line.ns_per_byte,
        latency_error_ns=max(most_ns - likely_ns, likely_ns - least_ns),
        error_ratio=float(np.sqrt(inflation / weight.sum())),
        waves=float(np.average(waves, weights=weight)),
        size_bytes=float(np.average(sizes, weights=weight)),
    )
    return fit.with_latency(likely_ns)


def _medians(busy_periods: BusyPeriods) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return waves, bytes, median time and its relative error for each group of equal periods: float64 [k] each."""
    durations_ns = busy_periods.end_ns - busy_periods.begin_ns
    kinds, kind_of_period = np.unique(
        np.stack((busy_periods.waves, busy_periods.size_bytes)), axis=1, return_inverse=True
    )
    medians_ns, errors = [], []
    for i in range(kinds.shape[1]):
        alike_ns = durations_ns[kind_of_period.reshape(-1) == i]
        medians_ns.append(float(np.median(alike_ns)))
        # One or two busy periods may agree by chance.
        error = median_error(alike_ns) / medians_ns[-1] if len(alike_ns) > 2 else 1.0
        errors.append(float(np.hypot(error, _LEAST_ERROR)))
    return kinds[0].astype(float), kinds[1].astype(float), np.array(medians_ns), np.array(errors)


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
