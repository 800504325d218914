"""Fits clocks to the ends of collectives: from one clock that is known to all that share collectives with it.

No rank leaves a synchronising collective before the last has entered. So its end is one moment on all ranks, up to the
spread of the transfer. What is assumed of a clock holds as long as these moments do not contradict it (`assumed`). Else
they decide.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from tracekit.analysis.clocks.agreement import agreeing
from tracekit.analysis.clocks.assumed import UnfittedClock, confirmed
from tracekit.analysis.clocks.fit import fit_clock, model_of_fit
from tracekit.analysis.clocks.moments import FEWEST_MOMENTS, Moments
from tracekit.model.clocks import ClockModel
from tracekit.model.events import ABSENT, Bool, Int64

__all__ = ["FittedClocks", "common_moments", "fit_to_collectives"]

_SPREAD_PERCENTILE = 90


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
    others = {r: state.models[moments.ranks[r]] for r in known}
    error_ns = math.ceil(np.median([model.error_ns or 0 for model in others.values()]))
    root = state.root[moments.ranks[known[0]]]
    aligned, fitted = [], []
    for r in unknown:
        clock = state.clocks[moments.ranks[r]]
        both = target & moments.there[r]
        if not both.any():
            continue
        end_ns = moments.end_ns[r, both]
        prior = state.prior(clock, frame)
        model = prior and confirmed(clock, prior, moments, others, target_ns, both, error_ns)
        if model is None:
            fit = fit_clock(end_ns, target_ns[both], partial(moments.lateness, r, both))
            must_agree = state.agreeing_only and clock.measured.method == "none"
            if must_agree and (len(fit.pieces) > 1 or not _agrees(state, group, moments, known)[r]):
                continue
            fitted.append(r)
            model = model_of_fit(clock.number, clock.recorded_ns, fit)
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
            fit = fit_clock(moments.end_ns[r, here], target_ns[here])
            own_ns = model_of_fit(number, state.clocks[number].recorded_ns, fit).error_ns or 0
            state.root_error_ns[number] = math.ceil(math.hypot(own_ns, spread_ns))


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
