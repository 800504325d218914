"""What is known of a clock without collectives, and whether they contradict it.

A measurement by the probe holds as long as the ends of collectives do not contradict it, and so does the rule that
processes of one host share a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tracekit.analysis.clocks.fit import ClockFit, fit_clock, model_of_fit
from tracekit.analysis.clocks.jumps import SMALLEST_JUMP_NS
from tracekit.analysis.clocks.moments import FEWEST_MOMENTS, Moments
from tracekit.model.clocks import ClockModel, Method
from tracekit.model.events import Bool, Int64

__all__ = ["UnfittedClock", "confirmed"]

_FEWEST_TOO_EARLY = 2  # collectives that show that a clock is wrong
_NEVER_NS = 1 << 62


@dataclass(frozen=True, kw_only=True)
class UnfittedClock:
    """A clock, and what is known of it without collectives. It is that of a rank, or of several that share it.

    Attributes:
        number: of its rank, or of one of them.
        measured: by the probe.
        machine: whose ranks share a clock; None if it is not known.
        recorded_ns: when its recording begins and ends, on this clock.
    """

    number: int
    measured: ClockModel
    machine: str | None
    recorded_ns: tuple[int, int]


def confirmed(
    clock: UnfittedClock,
    prior: ClockModel,
    moments: Moments,
    others: Mapping[int, ClockModel],
    target_ns: Int64,
    both: Bool,
    error_ns: int,
) -> ClockModel | None:
    """Return the `prior` of a clock with its error; None if collectives contradict it.

    others: models of the clocks that it is compared with, by their place in the group.
    target_ns: when the group's collectives end by these, int64 [n], which is off by up to `error_ns`.
    both: which of them the clock shows as well, bool [n].
    """
    place, target_ns = moments.ranks.index(clock.number), target_ns[both]
    apart_ns = prior.to_run(moments.end_ns[place, both]) - target_ns
    fit = fit_clock(target_ns + apart_ns, target_ns, partial(moments.lateness, place, both))
    # The clock of a host does not jump for one of its ranks alone. It may be that something slows the rank down for a
    # while, so that it leaves late.
    is_of_host = clock.measured.method == "none" or prior.error_ns == 0
    jumps = len(fit.pieces) > 1
    if jumps and is_of_host:
        jumps = _leaves_too_early(moments, {place: prior, **others}, both)
    if _contradicts(fit, apart_ns, target_ns, moments.transfer_ns, prior.error_ns or 0, jumps=jumps):
        return None
    if clock.measured.method != "none":
        seen_ns = prior.to_run(np.array(clock.recorded_ns, dtype=np.int64))
        begin_ns, end_ns = seen_ns.tolist()
        model = model_of_fit(clock.number, (begin_ns, end_ns), fit)
        off_ns = int(np.abs(model.to_run(seen_ns) - seen_ns).max()) + (model.error_ns or 0)
        return replace(
            prior, error_ns=min(prior.error_ns or 0, off_ns + fit.spread_ns + moments.transfer_ns + error_ns)
        )
    off_by_ns, noise_ns = _middle_and_noise(apart_ns)
    uncertain_ns = round(abs(off_by_ns) + 2 * noise_ns / np.sqrt(len(apart_ns)))
    method: Method = "probe" if prior.method == "probe" else "collectives"
    return replace(prior, method=method, error_ns=(prior.error_ns or 0) + uncertain_ns)


def _leaves_too_early(moments: Moments, models: Mapping[int, ClockModel], chosen: Bool) -> bool:
    """Return whether by these models of clocks, by place, a rank leaves `chosen` collectives, bool [n], before another
    enters them. None can.
    """
    last_begin_ns, first_end_ns = np.full(chosen.sum(), -_NEVER_NS), np.full(chosen.sum(), _NEVER_NS)
    for r, model in models.items():
        there, end_ns = moments.there[r, chosen], moments.end_ns[r, chosen]
        begin_ns = model.to_run(end_ns - moments.duration_ns[r, chosen])
        last_begin_ns = np.where(there, np.maximum(last_begin_ns, begin_ns), last_begin_ns)
        first_end_ns = np.where(there, np.minimum(first_end_ns, model.to_run(end_ns)), first_end_ns)
    return int(np.count_nonzero(last_begin_ns - first_end_ns > SMALLEST_JUMP_NS)) >= _FEWEST_TOO_EARLY


def _contradicts(
    fit: ClockFit, apart_ns: Int64, target_ns: Int64, transfer_ns: int, error_ns: int, *, jumps: bool
) -> bool:
    """Return whether the ends of collectives show another clock than the assumed one.

    They are off by `apart_ns` at `target_ns`, int64 [n] each, to which `fit` is fitted. They contradict by their median
    (a rank may always be the first or the last to finish), by a drift, or by jumps.
    """
    if len(apart_ns) < FEWEST_MOMENTS:
        return False
    off_ns, noise_ns = _middle_and_noise(apart_ns)
    drifted_ns = abs(fit.drift or 0.0) * int(np.ptp(target_ns))
    off = abs(off_ns) > noise_ns + transfer_ns + error_ns
    return off or jumps or (len(fit.pieces) == 1 and drifted_ns > fit.spread_ns + error_ns)


def _middle_and_noise(apart_ns: Int64) -> tuple[float, float]:
    """Return the median, and the deviation from it that nine of ten stay within."""
    middle = float(np.median(apart_ns - apart_ns[0]))
    deviations = np.abs((apart_ns - apart_ns[0]) - middle)
    return middle + int(apart_ns[0]), float(np.percentile(deviations, 90, method="higher"))
