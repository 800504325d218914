"""Fits clocks to the ends of collectives: from one clock that is known to all that share collectives with it.

No rank leaves a synchronising collective before the last has entered. So its end is one moment on all ranks, up to the
spread of the transfer. What is known of a clock without collectives (the probe measured it, or it is that of its host)
holds as long as these ends do not contradict it. Else they decide.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tracekit.job.clocks.collective_samples import FEWEST_SAMPLES, CollectiveSamples
from tracekit.job.clocks.fit import ClockFit, fit_clock, model_of_fit
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.run import ClockModel
from tracekit.stats.grouped import grouped

_SPREAD_PERCENTILE = 90


@dataclass(frozen=True, kw_only=True)
class UnfittedClock:
    """The clock of a rank, and what is known of it without collectives.

    Attributes:
        measured: by the probe.
        host: whose ranks share a clock; None if it is not known.
        recorded_ns: when its recording begins and ends, on this clock.
        resolution_ns: how far its times may be off the clock of its host.
        is_of_boot: its times are those of a host whose boot has an id: no end of a collective contradicts that.
    """

    rank: int
    measured: ClockModel
    host: str | None
    recorded_ns: tuple[int, int]
    resolution_ns: int
    is_of_boot: bool = False


@dataclass(frozen=True, kw_only=True)
class FittedClocks:
    """Models of all clocks, each in a frame.

    Attributes:
        models: by rank.
        frame: by rank, the rank whose clock its model is against; ABSENT for the clock that probes measured against.
        root_error_ns: of ranks to whose clocks others were fitted, by how much their ends may be off the common ones.
    """

    models: dict[int, ClockModel]
    frame: dict[int, int]
    root_error_ns: dict[int, int]


def fit_to_collectives(clocks: Sequence[UnfittedClock], samples: Sequence[CollectiveSamples]) -> FittedClocks:
    """Return a model of each clock, of which those that share samples or a host are in one frame."""
    state = _State(clocks={clock.rank: clock for clock in clocks})
    of_host = grouped((clock.host, clock.rank) for clock in clocks if clock.host is not None)
    groups_of_rank = grouped((rank, i) for i, of_group in enumerate(samples) for rank in of_group.ranks)
    for anchor in sorted(clocks, key=_content_of_clocks(clocks, samples)):
        if anchor.rank in state.models:
            continue
        state.add(anchor.measured, anchor.rank)
        frame = state.frame(anchor.rank)
        waiting: list[tuple[tuple[int, ...], int]] = []  # groups with a known clock, the most samples first
        added = [anchor.rank]
        while added or waiting:
            for i in {group for rank in added for group in groups_of_rank.get(rank, ())}:
                heapq.heappush(waiting, (samples[i].content, i))
            added = []
            if waiting:
                _, i = heapq.heappop(waiting)
                added = _align_group(state, samples[i], frame)
            if not waiting and not added:
                added = _adopt_hosts(state, of_host, frame)
    return FittedClocks(
        models=state.models,
        frame={rank: state.frame(rank) for rank in state.models},
        root_error_ns=state.root_error_ns,
    )


def _content_of_clocks(
    clocks: Sequence[UnfittedClock], samples: Sequence[CollectiveSamples]
) -> Callable[[UnfittedClock], tuple[int, ...]]:
    """Return a sort key that decides with which clock to begin, so that neither its rank nor its time matters.

    First come clocks that were measured, then those with the most samples, and then those whose samples took the
    shortest time.
    """
    count, durations_ns, mixed = (Counter[int]() for _ in range(3))
    for group_samples in samples:
        position = np.arange(1, group_samples.count + 1)
        for r, rank in enumerate(group_samples.ranks):
            present = group_samples.there[r]
            duration_ns = group_samples.duration_ns[r, present]
            count[rank] += len(duration_ns)
            durations_ns[rank] += int(duration_ns.sum())
            mixed[rank] += int((duration_ns * position[present]).sum())

    def key(clock: UnfittedClock) -> tuple[int, ...]:
        rank = clock.rank
        return (clock.measured.method == "none", -count[rank], durations_ns[rank], mixed[rank], rank)

    return key


@dataclass(kw_only=True)
class _State:
    """The models so far.

    Attributes:
        clocks: by rank.
        models: by rank.
        root: by rank, the rank from whose clock this one was reached.
        root_error_ns: as in `FittedClocks`.
        best_of_host: of the models of each host in each frame, that of least error.
    """

    clocks: Mapping[int, UnfittedClock]
    models: dict[int, ClockModel] = field(default_factory=dict)
    root: dict[int, int] = field(default_factory=dict)
    root_error_ns: dict[int, int] = field(default_factory=dict)
    best_of_host: dict[tuple[str, int], ClockModel] = field(default_factory=dict)

    def frame(self, rank: int) -> int:
        root = self.root[rank]
        return root if self.clocks[root].measured.method == "none" else ABSENT

    def add(self, model: ClockModel, root: int) -> None:
        self.models[model.rank], self.root[model.rank] = model, root
        host = self.clocks[model.rank].host
        if host is not None:
            key = host, self.frame(model.rank)
            best = self.best_of_host.get(key, model)
            if best.rank == model.rank or (model.error_ns or 0) < (best.error_ns or 0):
                self.best_of_host[key] = model

    def prior(self, clock: UnfittedClock, frame: int) -> ClockModel | None:
        """Return the model that holds in a frame unless collectives contradict it: the measurement, else that of the
        host's other ranks.
        """
        if clock.measured.method != "none":
            return clock.measured if frame == ABSENT else None
        best = None if clock.host is None else self.best_of_host.get((clock.host, frame))
        if best is None:
            return None
        is_frame = best.method == "none"  # its offset of 0 holds at any time
        return replace(
            best,
            rank=clock.rank,
            method="host" if is_frame else best.method,
            at_ns=clock.recorded_ns[0] if is_frame else best.at_ns,
            drift_ppm=0.0 if is_frame else best.drift_ppm,
        )


def _align_group(state: _State, samples: CollectiveSamples, frame: int) -> list[int]:
    """Add models for the clocks of a group that have none, against those in `frame`. Return the ranks that got one."""
    known = [r for r, rank in enumerate(samples.ranks) if rank in state.models and state.frame(rank) == frame]
    unknown = [r for r, rank in enumerate(samples.ranks) if rank not in state.models]
    if not known or not unknown:
        return []
    target_ns, target = common_samples(state.models, samples, known)
    # The end of a collective is the median over the known clocks, and about as uncertain as most of them.
    error_ns = math.ceil(np.median([state.models[samples.ranks[r]].error_ns or 0 for r in known]))
    root = state.root[samples.ranks[known[0]]]
    aligned, fitted = [], []
    for r in unknown:
        clock = state.clocks[samples.ranks[r]]
        both = target & samples.there[r]
        if not both.any():
            continue
        end_ns = samples.end_ns[r, both]
        prior = state.prior(clock, frame)
        model = prior and _confirmed(clock, prior, end_ns, target_ns[both], samples.transfer_ns, error_ns)
        if model is None:
            fitted.append(r)
            model = model_of_fit(clock.rank, clock.recorded_ns, fit_clock(end_ns, target_ns[both]))
        state.add(model, root)
        aligned.append(r)
    if fitted:
        _add_spreads(state, samples, known + aligned, fitted, error_ns)
    return [samples.ranks[r] for r in aligned]


def _adopt_hosts(state: _State, of_host: Mapping[str, Sequence[int]], frame: int) -> list[int]:
    """Add models for the clocks whose host has a known one in `frame`, and that no collective reached."""
    adopted = []
    for host, ranks in of_host.items():
        if (host, frame) in state.best_of_host:
            for rank in ranks:
                model = None if rank in state.models else state.prior(state.clocks[rank], frame)
                if model is not None:
                    if state.clocks[rank].measured.method == "none":
                        model = replace(model, error_ns=(model.error_ns or 0) + state.clocks[rank].resolution_ns)
                    state.add(model, state.root[state.best_of_host[host, frame].rank])
                    adopted.append(rank)
    return adopted


def _confirmed(
    clock: UnfittedClock, prior: ClockModel, end_ns: Int64, target_ns: Int64, transfer_ns: int, error_ns: int
) -> ClockModel | None:
    """Return the `prior` of a clock with its error; None if collectives contradict it.

    They end at `end_ns` on the clock, and by others at `target_ns`, which is off by up to `error_ns`: int64 [n] each.
    """
    apart_ns = prior.to_run(end_ns) - target_ns
    fit = fit_clock(target_ns + apart_ns, target_ns)
    # Ranks of one boot have one clock: what was measured without error is that of the reference's machine.
    is_sure = clock.is_of_boot and (clock.measured.method == "none" or not prior.error_ns)
    if not is_sure and _contradicts(fit, apart_ns, target_ns, transfer_ns, prior.error_ns or 0):
        return None
    if clock.measured.method != "none":
        seen_ns = prior.to_run(np.array(clock.recorded_ns, dtype=np.int64))
        begin_ns, end_of_recording_ns = seen_ns.tolist()
        model = model_of_fit(clock.rank, (begin_ns, end_of_recording_ns), fit)
        off_ns = int(np.abs(model.to_run(seen_ns) - seen_ns).max()) + (model.error_ns or 0)
        return replace(prior, error_ns=min(prior.error_ns or 0, off_ns + fit.spread_ns + transfer_ns + error_ns))
    # The clock of the host is known through its other ranks, and this one's ends show how well.
    off_by_ns, noise_ns = _middle_and_noise(apart_ns)
    uncertain_ns = min(round(abs(off_by_ns) + 2 * noise_ns / np.sqrt(len(apart_ns))), clock.resolution_ns)
    return replace(prior, error_ns=(prior.error_ns or 0) + uncertain_ns)


def _contradicts(fit: ClockFit, apart_ns: Int64, target_ns: Int64, transfer_ns: int, error_ns: int) -> bool:
    """Return whether the ends of collectives show another clock than the assumed one.

    They are off by `apart_ns` at `target_ns`, int64 [n] each, to which `fit` is fitted. They contradict by their median
    (a rank may always be the first or the last to finish, and wait for its turn on a shared device) or by a drift.
    """
    if len(apart_ns) < FEWEST_SAMPLES:
        return False
    off_ns, noise_ns = _middle_and_noise(apart_ns)
    drifted_ns = abs(fit.drift or 0.0) * int(np.ptp(target_ns))
    return abs(off_ns) > noise_ns + transfer_ns + error_ns or drifted_ns > fit.spread_ns + error_ns


def _middle_and_noise(apart_ns: Int64) -> tuple[float, float]:
    """Return the median, and the deviation from it that nine of ten stay within."""
    middle = float(np.median(apart_ns - apart_ns[0]))
    deviations = np.abs((apart_ns - apart_ns[0]) - middle)
    return middle + int(apart_ns[0]), float(np.percentile(deviations, 90, method="higher"))


def _add_spreads(
    state: _State, samples: CollectiveSamples, members: Sequence[int], fitted: Sequence[int], error_ns: int
) -> None:
    """Add to the errors of the `fitted` clocks what is unknown besides their fits.

    That is how far their ends are off the median of all `members`, as all ends of a rank may deviate alike, and by how
    much the clocks that they were fitted to are off, `error_ns`.
    """
    target_ns, target = common_samples(state.models, samples, members)
    for r in members:
        rank = samples.ranks[r]
        model = state.models[rank]
        here = target & samples.there[r]
        off_ns = np.abs(model.to_run(samples.end_ns[r, here]) - target_ns[here])
        spread_ns = int(np.percentile(off_ns, _SPREAD_PERCENTILE, method="higher")) if len(off_ns) else 0
        if samples.uneven or len(off_ns) < FEWEST_SAMPLES:
            spread_ns = max(spread_ns, samples.transfer_ns)
        if r in fitted:
            if len(members) == 2:  # the median of two is halfway between them
                spread_ns *= 2
            own_ns = math.ceil(math.hypot(model.error_ns or 0, spread_ns))
            state.add(replace(model, error_ns=own_ns + error_ns), state.root[rank])
        elif rank == state.root[rank] and model.method == "none" and rank not in state.root_error_ns:
            fit = fit_clock(samples.end_ns[r, here], target_ns[here])
            own_ns = model_of_fit(rank, state.clocks[rank].recorded_ns, fit).error_ns or 0
            state.root_error_ns[rank] = math.ceil(math.hypot(own_ns, spread_ns))


def common_samples(
    models: Mapping[int, ClockModel], samples: CollectiveSamples, members: Sequence[int]
) -> tuple[Int64, Bool]:
    """Return when each collective ended in the frame, and for which collectives this is known: int64 [n] and bool [n].

    The end is the median over `members`, indexes in the group whose `models` are known.
    """
    there = samples.there[members]
    ends_ns = np.stack([models[samples.ranks[r]].to_run(samples.end_ns[r]) for r in members])
    if len(members) == 1:
        return ends_ns[0], there[0]
    any_there = np.asarray(there.any(axis=0))
    base_ns: Int64 = ends_ns[np.argmax(there, axis=0), np.arange(ends_ns.shape[1])]
    difference_ns = np.where(there, (ends_ns - base_ns).astype(np.float64), np.nan)
    difference_ns[:, ~any_there] = 0.0
    median_ns: Int64 = np.rint(np.nanmedian(difference_ns, axis=0)).astype(np.int64)
    return base_ns + median_ns, any_there
