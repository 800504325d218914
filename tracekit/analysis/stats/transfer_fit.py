"""How long the all-reduces of a group take by their size: a latency and a bandwidth.

Comes in: when the transfers of a group began (its last rank was there) and ended. Goes out: `TransferFit`.

Transfers in flight at once share the connections, and one that is small waits behind one that is large. So what is
fitted are stretches of time in which the group transfers without a pause: b bytes in w waves of as many transfers as
run at once take w * latency + b * ns_per_byte. Where ranks copy gradients back meanwhile, on processors that transfers
need as well, they take longer: by how much is fitted last, to those stretches. Fitted are medians of stretches alike,
relatively: a machine that is busy now and then makes single ones many times as long. The less the sizes of stretches
differ, the less is known of the latency: it is at most what the quickest size takes, and taken to be nothing where it
cannot be told from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracekit.analysis.stats.medians import median_error
from tracekit.model.events import Bool, Int64
from tracekit.model.intervals import Intervals

__all__ = ["Stretches", "TransferFit", "fit_transfers", "stretches_of"]

_COPYING = 0.05  # of a stretch
_ENOUGH = 3  # stretches
_MOST_HELD = 0.95
_INDEPENDENT = 1e-4  # with less, waves and bytes of stretches go together, and latency cannot be told
_APART = 1.5  # times: sizes closer than that tell no latency
_LEAST_ERROR = 0.02  # of the median of stretches alike: the model is not better than this


@dataclass(frozen=True, kw_only=True, eq=False)
class Stretches:
    """n stretches in order of time: begin_ns, end_ns, transfers, waves, size_bytes: int64 [n]. copying_ns: float64 [n],
    for how long in each a rank copies gradients back, mean over ranks. quickest_ns: the median time of the quickest
    size."""

    begin_ns: Int64
    end_ns: Int64
    transfers: Int64
    waves: Int64
    size_bytes: Int64
    copying_ns: np.ndarray
    quickest_ns: float

    def rows(self, which: Bool) -> Stretches:
        names = ("begin_ns", "end_ns", "transfers", "waves", "size_bytes", "copying_ns")
        return replace(self, **{name: getattr(self, name)[which] for name in names})


@dataclass(frozen=True, kw_only=True)
class TransferFit:
    """`latency_error_ns`: what the latency may be off; the bandwidth is then off the other way, such that a usual
    stretch of `waves` and `size_bytes` takes as long. `error_ratio`: how far what such a stretch takes may be off.
    `held_ratio`: the part of the time in which all ranks copy gradients back that a transfer does not progress.
    """

    latency_ns: float
    ns_per_byte: float
    latency_error_ns: float
    error_ratio: float
    waves: float
    size_bytes: float
    held_ratio: float = 0.0

    def late_ns(self, stretches: Stretches) -> np.ndarray:
        """float64 [n]: how much longer each stretch took than the fit says, by transfer."""
        expected_ns = stretches.waves * self.latency_ns + stretches.size_bytes * self.ns_per_byte
        expected_ns += self.held_ratio * stretches.copying_ns
        return np.asarray((stretches.end_ns - stretches.begin_ns - expected_ns) / stretches.transfers)

    def with_latency(self, latency_ns: float) -> TransferFit:
        """Another latency, not below zero, the bandwidth such that the usual stretch takes as long."""
        latency_ns = max(latency_ns, 0.0)
        usual_ns = self.waves * self.latency_ns + self.size_bytes * self.ns_per_byte
        ns_per_byte = max(usual_ns - self.waves * latency_ns, 0.0) / max(self.size_bytes, 1.0)
        return replace(self, latency_ns=latency_ns, ns_per_byte=ns_per_byte)


def stretches_of(
    begin_ns: Int64, end_ns: Int64, size_bytes: Int64, in_flight: int, copies: Sequence[Intervals] = ()
) -> Stretches | None:
    """None without transfers that took time. int64 [n] each; `in_flight`: how many run at once; `copies`: of each rank,
    when it copies gradients back."""
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
    stretch_ns = begin_ns[order][first], reach_ns[last]
    return Stretches(
        begin_ns=begin_ns[order][first],
        end_ns=reach_ns[last],
        transfers=last - first + 1,
        waves=-(-(last - first + 1) // in_flight),
        size_bytes=np.add.reduceat(size_bytes[order], first),
        copying_ns=np.array(
            [rank_copies.covered_ns(*stretch_ns) for rank_copies in copies] or [np.zeros(len(first), dtype=np.int64)]
        ).mean(axis=0),
        quickest_ns=min(float(np.median(durations_ns[size_bytes == size])) for size in np.unique(size_bytes)),
    )


def fit_transfers(stretches: Stretches) -> TransferFit:
    """Latency and bandwidth, neither below zero, from stretches without copies where there are enough of them."""
    copying = stretches.copying_ns > _COPYING * (stretches.end_ns - stretches.begin_ns)
    if not copying.any() or (~copying).sum() < _ENOUGH:
        return _latency_and_bandwidth(stretches.rows(_usual(stretches)))
    free = stretches.rows(~copying)
    fit = _latency_and_bandwidth(free.rows(_usual(free)))
    held = stretches.rows(copying)
    held_ratio = float((fit.late_ns(held) * held.transfers).sum() / held.copying_ns.sum())
    return replace(fit, held_ratio=float(np.clip(held_ratio, 0.0, _MOST_HELD)))


def _usual(stretches: Stretches) -> Bool:
    """Mask: all, or where most transfers are alone, those: then two came together because one was slow."""
    alone = stretches.transfers == 1
    return alone if 2 * int(alone.sum()) > int(stretches.transfers.sum()) else np.ones(len(alone), dtype=np.bool_)


def _latency_and_bandwidth(stretches: Stretches) -> TransferFit:
    waves, sizes, medians_ns, errors = _medians(stretches)
    matrix = np.stack((waves / medians_ns, sizes / medians_ns), axis=1) / errors[:, None]
    scale = np.linalg.norm(matrix, axis=0)
    solved, _, rank, _ = np.linalg.lstsq(matrix / scale, 1 / errors, rcond=_INDEPENDENT)
    latency_ns, ns_per_byte = (solved / scale).tolist()
    squared_errors = (matrix @ (solved / scale) - 1 / errors) ** 2
    inflation = max(1.0, float(squared_errors.sum()) / max(len(medians_ns) - 2, 1))
    spread_ns = np.inf
    if rank == 2 and sizes.max() >= _APART * sizes.min():
        covariance = np.linalg.inv((matrix / scale).T @ (matrix / scale)) * inflation
        spread_ns = float(np.sqrt(covariance[0, 0]) / scale[0])
    least_ns = float(np.clip(latency_ns - spread_ns, 0.0, stretches.quickest_ns))
    most_ns = float(np.clip(latency_ns + spread_ns, 0.0, stretches.quickest_ns))
    weight = 1 / errors**2
    likely_ns = latency_ns if spread_ns < latency_ns <= most_ns else least_ns
    fit = TransferFit(
        latency_ns=latency_ns,
        ns_per_byte=ns_per_byte,
        latency_error_ns=max(most_ns - likely_ns, likely_ns - least_ns),
        error_ratio=float(np.sqrt(inflation / weight.sum())),
        waves=float(np.average(waves, weights=weight)),
        size_bytes=float(np.average(sizes, weights=weight)),
    )
    return fit.with_latency(likely_ns)


def _medians(stretches: Stretches) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Stretches alike: waves, bytes, the median time, and its relative error: float64 [k] each."""
    durations_ns = stretches.end_ns - stretches.begin_ns
    kinds, kind_of_stretch = np.unique(np.stack((stretches.waves, stretches.size_bytes)), axis=1, return_inverse=True)
    medians_ns, errors = [], []
    for i in range(kinds.shape[1]):
        alike_ns = durations_ns[kind_of_stretch.reshape(-1) == i]
        medians_ns.append(float(np.median(alike_ns)))
        # One or two may be alike by chance.
        error = median_error(alike_ns) / medians_ns[-1] if len(alike_ns) > 2 else 1.0
        errors.append(float(np.hypot(error, _LEAST_ERROR)))
    return kinds[0].astype(float), kinds[1].astype(float), np.array(medians_ns), np.array(errors)
