"""Fits clocks to the ends of collectives: from one clock that is known to all that share collectives with it.

No rank leaves a synchronising collective before the last has entered. So its end is one moment on all ranks, up to the
spread of the transfer. A measurement by the probe holds as long as these moments do not contradict it, and so does the
rule that processes of one host share a clock. If they contradict, or nothing was measured, the moments decide.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from tracekit.analysis.clocks.agreement import agreeing
from tracekit.analysis.clocks.fit import ClockFit, fit_clock
from tracekit.analysis.clocks.jumps import SMALLEST_JUMP_NS
from tracekit.analysis.clocks.moments import FEWEST_MOMENTS, Moments
from tracekit.model.clocks import ClockJump, ClockModel, Method
from tracekit.model.events import ABSENT, Bool, Int64

__all__ = ["FittedClocks", "UnfittedClock", "common_moments", "fit_to_collectives"]

_SPREAD_PERCENTILE = 90
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


@dataclass(frozen=True, kw_only=True)
class FittedClocks:
    """Models of all clocks, each in a frame.

    Attributes:
        models: by number of the clock.
        frame: by number of the clock, the number of the clock that its model is against; ABSENT for the clock that the
            probes measured against.
        root_error_ns: of clocks that others were fitted to, by how much their own ends may be off the common ones.
    """

    models: dict[int, ClockModel]
    frame: dict[int, int]
    root_error_ns: dict[int, int]


def fit_to_collectives(
    clocks: Sequence[UnfittedClock], moments: Sequence[Moments], *, agreeing_only: bool = False
) -> FittedClocks:
    """Return a model of each clock, of which those that share moments are in one frame.

    With `agreeing_only` an unmeasured clock that differs from the others by more than an offset and a drift stays the
    clock of a frame of its own.
    """
    state = _State(clocks={clock.number: clock for clock in clocks}, agreeing_only=agreeing_only)
    anchors = sorted(clocks, key=_content_of_clocks(clocks, moments))
    groups_of_clock: dict[int, list[int]] = {}
    for i, group_moments in enumerate(moments):
        for number in group_moments.ranks:
            groups_of_clock.setdefault(number, []).append(i)
    for anchor in anchors:
        if anchor.number in state.models:
            continue
        state.models[anchor.number] = anchor.measured
        state.root[anchor.number] = anchor.number
        # Groups with a rank whose clock is known, most moments first. A group may be used more than once.
        waiting = [(moments[i].content, i) for i in groups_of_clock.get(anchor.number, ())]
        heapq.heapify(waiting)
        while waiting:
            _, i = heapq.heappop(waiting)
            aligned = _align_group(state, i, moments[i], state.frame(anchor.number))
            for other in {group for number in aligned for group in groups_of_clock[number]} - {i}:
                heapq.heappush(waiting, (moments[other].content, other))
    return FittedClocks(
        models=state.models,
        frame={number: state.frame(number) for number in state.models},
        root_error_ns=state.root_error_ns,
    )


def _content_of_clocks(
    clocks: Sequence[UnfittedClock], moments: Sequence[Moments]
) -> Callable[[UnfittedClock], tuple[int, ...]]:
    """Return a sort key that decides with which clock to begin, so that neither its number nor its time matters.

    First come clocks that were measured, then those that were never set back, then those with the most moments, and
    then those whose moments took the shortest time.
    """
    set_back, count, durations_ns, mixed = (Counter[int]() for _ in range(4))
    for group_moments in moments:
        place = np.arange(1, group_moments.count + 1)
        for r, number in enumerate(group_moments.ranks):
            present = group_moments.there[r]
            duration_ns = group_moments.duration_ns[r, present]
            set_back[number] |= int(group_moments.set_back[r])
            count[number] += len(duration_ns)
            durations_ns[number] += int(duration_ns.sum())
            mixed[number] += int((duration_ns * place[present]).sum())

    def key(clock: UnfittedClock) -> tuple[int, ...]:
        number = clock.number
        unmeasured = clock.measured.method == "none"
        return (unmeasured, set_back[number], -count[number], durations_ns[number], mixed[number], number)

    return key


@dataclass(kw_only=True)
class _State:
    """The models so far.

    Attributes:
        clocks: by number.
        agreeing_only: as in `fit_to_collectives`.
        models: by number.
        root: by number, the clock from which this one was reached.
        root_error_ns: as in `FittedClocks`.
        agreement: of groups, by place, what `agreeing` says of them.
    """

    clocks: Mapping[int, UnfittedClock]
    agreeing_only: bool
    models: dict[int, ClockModel] = field(default_factory=dict)
    root: dict[int, int] = field(default_factory=dict)
    root_error_ns: dict[int, int] = field(default_factory=dict)
    agreement: dict[int, Int64] = field(default_factory=dict)

    @cached_property
    def hosts(self) -> dict[str, list[int]]:
        """The clocks of each known machine."""
        result: dict[str, list[int]] = {}
        for clock in self.clocks.values():
            if clock.machine is not None:
                result.setdefault(clock.machine, []).append(clock.number)
        return result

    def frame(self, number: int) -> int:
        root = self.root[number]
        return root if self.clocks[root].measured.method == "none" else ABSENT

    def prior(self, clock: UnfittedClock, frame: int) -> ClockModel | None:
        """Return the model that holds in a frame unless collectives contradict it: the measurement, else that of the
        machine's other ranks.
        """
        if clock.measured.method != "none":
            return clock.measured if frame == ABSENT else None
        numbers = self.hosts.get(clock.machine, ()) if clock.machine is not None else ()
        same_host = [self.models[n] for n in numbers if n in self.models and self.frame(n) == frame]
        best = min(same_host, key=lambda model: (model.error_ns or 0, model.offset_ns), default=None)
        if best is None:
            return None
        is_frame = best.method == "none"  # its offset of 0 holds at any time
        return replace(best, rank=clock.number, at_ns=clock.recorded_ns[0] if is_frame else best.at_ns)


def _align_group(state: _State, group: int, moments: Moments, frame: int) -> list[int]:
    """Add models for the clocks of the group that have none, against those in `frame`. Return the clocks that got
    one.
    """
    known = [r for r, n in enumerate(moments.ranks) if n in state.models and state.frame(n) == frame]
    unknown = [r for r, n in enumerate(moments.ranks) if n not in state.models]
    if not known or not unknown:
        return []
    if state.agreeing_only:
        unknown = _joinable(state, group, moments, frame, known, unknown)
        if not unknown:
            return []
    target_ns, target = common_moments(state.models, moments, known)
    # The end of a collective is the median over the known clocks, and about as uncertain as most of them.
    error_ns = math.ceil(np.median([state.models[moments.ranks[r]].error_ns or 0 for r in known]))
    root = state.root[moments.ranks[known[0]]]
    aligned, fitted = [], []
    for r in unknown:
        clock = state.clocks[moments.ranks[r]]
        both = target & moments.there[r]
        if not both.any():
            continue
        end_ns = moments.end_ns[r, both]
        model = _confirmed(state, clock, moments, known, both, target_ns, error_ns, frame)
        if model is None:
            fit = fit_clock(end_ns, target_ns[both])
            must_agree = state.agreeing_only and clock.measured.method == "none"
            if must_agree and (len(fit.pieces) > 1 or not _agrees(state, group, moments, known)[r]):
                continue
            fitted.append(r)
            model = _model_of_fit(clock, fit)
        state.models[clock.number], state.root[clock.number] = model, root
        aligned.append(r)
    if fitted:
        _add_spreads(state, moments, known + aligned, fitted, error_ns)
    return [moments.ranks[r] for r in aligned]


def _joinable(
    state: _State, group: int, moments: Moments, frame: int, known: Sequence[int], unknown: Sequence[int]
) -> list[int]:
    """Return those of the unknown clocks of a group that agree with known ones, or of which something is known."""
    agrees = _agrees(state, group, moments, known)
    clocks = [state.clocks[moments.ranks[r]] for r in unknown]
    return [
        r
        for r, clock in zip(unknown, clocks, strict=True)
        if agrees[r] or clock.measured.method != "none" or state.prior(clock, frame) is not None
    ]


def _agrees(state: _State, group: int, moments: Moments, known: Sequence[int]) -> Bool:
    """Return bool [k]: which clocks of a group differ from known ones by no more than an offset and a drift."""
    if group not in state.agreement:
        state.agreement[group] = agreeing(moments)
    agreement = state.agreement[group]
    return np.isin(agreement, agreement[known])


def _add_spreads(state: _State, moments: Moments, members: Sequence[int], fitted: Sequence[int], error_ns: int) -> None:
    """Add to the errors of the `fitted` clocks what is unknown besides their fits.

    That is how far their ends are off the median of all `members`, as all ends of a rank may deviate alike, and by how
    much the clocks that they were fitted to are off, `error_ns`.
    """
    target_ns, target = common_moments(state.models, moments, members)
    for r in members:
        number = moments.ranks[r]
        model = state.models[number]
        here = target & moments.there[r]
        off_ns = np.abs(model.to_run(moments.end_ns[r, here]) - target_ns[here])
        spread_ns = int(np.percentile(off_ns, _SPREAD_PERCENTILE, method="higher")) if len(off_ns) else 0
        if moments.uneven or len(off_ns) < FEWEST_MOMENTS:
            spread_ns = max(spread_ns, moments.transfer_ns)
        if r in fitted:
            if len(members) == 2:  # the median of two is halfway between them
                spread_ns *= 2
            own_ns = math.ceil(math.hypot(model.error_ns or 0, spread_ns))
            state.models[number] = replace(model, error_ns=own_ns + error_ns)
        elif number == state.root[number] and model.method == "none" and number not in state.root_error_ns:
            fit = _model_of_fit(state.clocks[number], fit_clock(moments.end_ns[r, here], target_ns[here]))
            state.root_error_ns[number] = math.ceil(math.hypot(fit.error_ns or 0, spread_ns))


def common_moments(models: Mapping[int, ClockModel], moments: Moments, members: Sequence[int]) -> tuple[Int64, Bool]:
    """Return when each collective ended in the frame, and for which collectives this is known: int64 [n] and bool [n].

    The end is the median over `members`, places in the group whose `models` are known.
    """
    there = moments.there[members]
    ends_ns = np.stack([models[moments.ranks[r]].to_run(moments.end_ns[r]) for r in members])
    if len(members) == 1:
        return ends_ns[0], there[0]
    any_there = np.asarray(there.any(axis=0))
    base_ns: Int64 = ends_ns[np.argmax(there, axis=0), np.arange(ends_ns.shape[1])]
    difference_ns = np.where(there, (ends_ns - base_ns).astype(np.float64), np.nan)
    difference_ns[:, ~any_there] = 0.0
    median_ns: Int64 = np.rint(np.nanmedian(difference_ns, axis=0)).astype(np.int64)
    return base_ns + median_ns, any_there


def _confirmed(
    state: _State,
    clock: UnfittedClock,
    moments: Moments,
    known: Sequence[int],
    both: Bool,
    target_ns: Int64,
    error_ns: int,
    frame: int,
) -> ClockModel | None:
    """Return what is known of a clock without collectives, if they do not contradict it.

    The collectives that it shares with `known` places of the group, `both`, bool [n], end at `target_ns` in the frame,
    int64 [n], which are off by up to `error_ns`.
    """
    prior = state.prior(clock, frame)
    if prior is None:
        return None
    place, target_ns = moments.ranks.index(clock.number), target_ns[both]
    apart_ns = prior.to_run(moments.end_ns[place, both]) - target_ns
    fit = fit_clock(target_ns + apart_ns, target_ns)
    # The clock of a host does not jump for one of its ranks alone. It may be that something slows the rank down for a
    # while, so that it leaves late.
    is_of_host = clock.measured.method == "none" or prior.error_ns == 0
    jumps = len(fit.pieces) > 1
    if jumps and is_of_host:
        jumps = _leaves_too_early(state, moments, known, place, prior, both)
    if _contradicts(fit, apart_ns, target_ns, moments.transfer_ns, prior.error_ns or 0, jumps=jumps):
        return None
    if clock.measured.method != "none":
        seen_ns = prior.to_run(np.array(clock.recorded_ns, dtype=np.int64))
        model = _model_of_fit(replace(clock, recorded_ns=tuple(seen_ns.tolist())), fit)
        off_ns = int(np.abs(model.to_run(seen_ns) - seen_ns).max()) + (model.error_ns or 0)
        return replace(
            prior, error_ns=min(prior.error_ns or 0, off_ns + fit.spread_ns + moments.transfer_ns + error_ns)
        )
    off_by_ns, noise_ns = _middle_and_noise(apart_ns)
    uncertain_ns = round(abs(off_by_ns) + 2 * noise_ns / np.sqrt(len(apart_ns)))
    method: Method = "probe" if prior.method == "probe" else "collectives"
    return replace(prior, method=method, error_ns=(prior.error_ns or 0) + uncertain_ns)


def _leaves_too_early(
    state: _State, moments: Moments, known: Sequence[int], place: int, prior: ClockModel, both: Bool
) -> bool:
    """Return whether by its assumed clock a rank leaves collectives before others enter, or enters when they have left.

    That is impossible. `both`, bool [n]: the collectives that the rank at `place` shares with `known` ones.
    """
    models = {place: prior} | {r: state.models[moments.ranks[r]] for r in known}
    last_begin_ns, first_end_ns = np.full(both.sum(), -_NEVER_NS), np.full(both.sum(), _NEVER_NS)
    for r, model in models.items():
        there, end_ns = moments.there[r, both], moments.end_ns[r, both]
        begin_ns = model.to_run(end_ns - moments.duration_ns[r, both])
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


def _model_of_fit(clock: UnfittedClock, fit: ClockFit) -> ClockModel:
    """Return the clock model of a fit. Its error is that of the fit anywhere in the clock's recording."""
    first, *later = fit.pieces
    # If a clock was set back, times before and after cannot be told apart. The error then covers the whole jump.
    overlap_ns = 2 * max((abs(piece.offset_ns - first.offset_ns) for piece in later if piece.overlaps), default=0)
    return ClockModel(
        rank=clock.number,
        method="collectives",
        offset_ns=first.offset_ns,
        at_ns=first.at_ns,
        drift_ppm=None if fit.drift is None else fit.drift * 1e6,
        error_ns=fit.error_ns(*clock.recorded_ns) + overlap_ns,
        jumps=tuple(ClockJump(from_ns=p.from_ns, offset_ns=p.offset_ns, at_ns=p.at_ns) for p in later),
    )
