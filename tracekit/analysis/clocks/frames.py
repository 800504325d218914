"""Joins frames of clocks by the collectives between them.

A frame is a set of ranks whose clocks are known against each other. Two frames may have few collectives of one group,
but each of their ranks has such collectives with its counterpart. The ranks of a frame share one clock, so the moments
of all of them tell how the clocks of two frames differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tracekit.analysis.clocks.assumed import UnfittedClock
from tracekit.analysis.clocks.by_collectives import FittedClocks, common_moments, fit_to_collectives
from tracekit.analysis.clocks.moments import FEWEST_MOMENTS, Moments
from tracekit.analysis.clocks.reference import inverse, relative
from tracekit.model.clocks import ClockModel
from tracekit.model.events import ABSENT, Bool, Int64

__all__ = ["join_by_collectives"]


def join_by_collectives(
    clocks: Sequence[UnfittedClock], moments: Sequence[Moments], fitted: FittedClocks
) -> FittedClocks:
    """Return the models in as few frames as collectives allow. `fitted` has one frame or more."""
    pooled = _pool(moments, fitted)
    if not pooled:
        return fitted
    members: dict[int, list[UnfittedClock]] = {}
    for clock in clocks:
        members.setdefault(fitted.frame[clock.number], []).append(clock)
    frame_clocks = [_clock_of_frame(frame, of_frame, fitted) for frame, of_frame in members.items()]
    joined = fit_to_collectives(frame_clocks, pooled)
    models, frames = dict(fitted.models), dict(fitted.frame)
    root_error_ns = dict(fitted.root_error_ns)
    for frame, error_ns in joined.root_error_ns.items():
        root_error_ns[frame] = math.ceil(math.hypot(error_ns, root_error_ns.get(frame, 0)))
    for frame_clock in frame_clocks:
        number = frame_clock.number
        if joined.models[number].method != "collectives":
            continue
        base = joined.frame[number]
        base_against_frame = inverse(joined.models[number], base)
        for clock in members[number]:
            model = fitted.models[clock.number]
            error_ns = model.error_ns or 0
            if model.method == "none":  # the clock of the frame itself
                model = replace(model, at_ns=clock.recorded_ns[0], drift_ppm=0.0)
                error_ns = fitted.root_error_ns.get(clock.number, 0)
            models[clock.number] = replace(
                relative(model, base_against_frame),
                method="collectives",
                error_ns=math.ceil(math.hypot(error_ns, joined.models[number].error_ns or 0)),
            )
            frames[clock.number] = base
    return FittedClocks(models=models, frame=frames, root_error_ns=root_error_ns)


def _clock_of_frame(frame: int, members: Sequence[UnfittedClock], fitted: FittedClocks) -> UnfittedClock:
    """Return the clock of a frame: that of one rank, or the one that the probes measured against.

    It is as uncertain as the clocks of most members are against it.
    """
    models = [fitted.models[clock.number] for clock in members]
    recorded_ns = np.array([clock.recorded_ns for clock in members], dtype=np.int64)
    on_frame_ns = np.stack([model.to_run(ns) for model, ns in zip(models, recorded_ns, strict=True)])
    return UnfittedClock(
        number=frame,
        measured=ClockModel(
            rank=frame,
            method="probe" if frame == ABSENT else "none",
            error_ns=math.ceil(np.median([model.error_ns or 0 for model in models])),
        ),
        machine=None,
        recorded_ns=(int(on_frame_ns[:, 0].min()), int(on_frame_ns[:, 1].max())),
    )


@dataclass
class _Pool:
    """Moments of groups that join the same frames. Each list has an item for each group."""

    end_ns: list[Int64] = field(default_factory=list)
    duration_ns: list[Int64] = field(default_factory=list)
    there: list[Bool] = field(default_factory=list)
    alike: list[Int64] = field(default_factory=list)
    set_back: list[Bool] = field(default_factory=list)

    def add_alike(self, alike: Int64) -> None:
        """Add what collectives of one more group have in common. Those of different groups have nothing."""
        self.alike.append(alike + 1 + max((int(other.max()) for other in self.alike), default=-1))

    def moments(self, frames: tuple[int, ...], *, uneven: bool) -> Moments:
        return Moments.build(
            frames,
            np.concatenate(self.end_ns, axis=1),
            np.concatenate(self.duration_ns, axis=1),
            np.concatenate(self.there, axis=1),
            alike=np.concatenate(self.alike),
            set_back=np.logical_or.reduce(self.set_back),
            uneven=uneven,
        )


def _pool(moments: Sequence[Moments], fitted: FittedClocks) -> list[Moments]:
    """Return the moments that frames share, of all groups that join the same frames together.

    A frame leaves a collective when its median rank does. It takes as long as its last rank to enter. Uneven moments
    serve only where there is too little else.
    """
    pools: dict[tuple[int, ...], dict[bool, _Pool]] = {}
    for group_moments in moments:
        frame_of_row = np.array([fitted.frame[number] for number in group_moments.ranks])
        frames = tuple(np.unique(frame_of_row).tolist())
        if len(frames) == 1:
            continue
        rows = [np.flatnonzero(frame_of_row == frame) for frame in frames]
        ends = [common_moments(fitted.models, group_moments, members.tolist()) for members in rows]
        longest = np.where(group_moments.there, group_moments.duration_ns, np.iinfo(np.int64).max)
        there = np.stack([present for _, present in ends])
        pool = pools.setdefault(frames, {}).setdefault(group_moments.uneven, _Pool())
        pool.end_ns.append(np.stack([end_ns for end_ns, _ in ends]))
        pool.duration_ns.append(np.where(there, np.stack([longest[members].min(axis=0) for members in rows]), 0))
        pool.there.append(there)
        pool.add_alike(group_moments.alike)
        pool.set_back.append(np.array([group_moments.set_back[members].any() for members in rows]))
    result = []
    for frames, by_evenness in pools.items():
        candidates = [pool.moments(frames, uneven=uneven) for uneven, pool in sorted(by_evenness.items())]
        enough = [pooled for pooled in candidates if pooled.count >= FEWEST_MOMENTS]
        result += enough[:1] or candidates
    return result
