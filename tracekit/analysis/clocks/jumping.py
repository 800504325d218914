"""Whose clock jumps. Models are against the clock of one rank, the reference, and that may be the one that jumps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from tracekit.model.clocks import ClockModel
from tracekit.model.summary import RankSummary

_NOTABLE_NS = 50_000
_ALIKE = 1 / 4  # of a jump, within which those of all ranks lie if it is the reference that jumps

__all__ = ["JumpingClock", "OwnJump", "jumping_clocks"]


class OwnJump(NamedTuple):
    """A jump of a clock: about when it is, on the clock itself, by how much it jumps ahead, and how far off the moment
    may be; None where it lies between two ends of collectives.
    """

    at_ns: int
    by_ns: int
    at_error_ns: int | None


@dataclass(frozen=True, kw_only=True)
class JumpingClock:
    """The jumps of a rank's clock.

    Attributes:
        jumps: at least one, in order of time.
        or_ranks: whose clocks may have jumped instead, the other way; none if it is known that this one did.
    """

    jumps: tuple[OwnJump, ...]
    or_ranks: tuple[int, ...] = ()

    @property
    def largest_ns(self) -> int:
        """Return by how much the clock jumps ahead where it jumps most."""
        return max((jump.by_ns for jump in self.jumps), key=abs)


def jumping_clocks(ranks: Sequence[RankSummary], models: Sequence[ClockModel]) -> dict[int, JumpingClock]:
    """Return the ranks whose clocks jump, or may.

    Ranks whose clocks jump against the reference stand against those whose clocks do not. It is known which of them
    jump if the others have at least twice as many machines. Of two machines, or two ranks, nothing tells it.
    """
    known = {model.rank: model for model in models if model.method != "none"}
    shown = {rank: model for rank, model in known.items() if model.method != "probe" and _jumps_notably(model)}
    if not shown:
        return {}
    still = {rank: model for rank, model in known.items() if rank not in shown}
    whose = _whose(ranks, known, shown)
    result: dict[int, JumpingClock] = {}
    if whose != "reference":
        or_ranks = tuple(still) if whose == "unknown" else ()
        result |= {rank: JumpingClock(jumps=_jumps(model), or_ranks=or_ranks) for rank, model in shown.items()}
    if whose != "others":
        or_ranks = tuple(shown) if whose == "unknown" else ()
        shows = shown[min(shown)]
        result |= {
            rank: JumpingClock(jumps=_jumps_of_frame(shows, model), or_ranks=or_ranks) for rank, model in still.items()
        }
    return dict(sorted(result.items()))


def _whose(
    ranks: Sequence[RankSummary], known: Collection[int], shown: Mapping[int, ClockModel]
) -> Literal["reference", "others", "unknown"]:
    """Return whose clocks jump: of the reference and those that agree with it, or the others, which are `shown` to."""
    votes = Counter[bool]()
    for members in _machines(ranks, known):
        jumping = sum(rank in shown for rank in members)
        if 2 * jumping != len(members):
            votes[2 * jumping > len(members)] += 1
    if votes[False] and votes[False] >= 2 * votes[True]:
        return "others"
    total_ns = np.array([sum(_jump_sizes_ns(model)) for model in shown.values()])
    alike = np.ptp(total_ns) <= _NOTABLE_NS + _ALIKE * abs(float(np.median(total_ns)))
    return "reference" if votes[True] and votes[True] >= 2 * votes[False] and alike else "unknown"


def _machines(ranks: Sequence[RankSummary], known: Collection[int]) -> list[list[int]]:
    """Return the known ranks of each machine. A rank whose machine nothing names is alone."""
    members: dict[object, list[int]] = {}
    for summary in ranks:
        if summary.rank in known:
            members.setdefault(summary.machine or summary.rank, []).append(summary.rank)
    return list(members.values())


def _jumps(model: ClockModel) -> tuple[OwnJump, ...]:
    sizes_ns = _jump_sizes_ns(model)
    return tuple(OwnJump(j.from_ns, by_ns, j.from_error_ns) for j, by_ns in zip(model.jumps, sizes_ns, strict=True))


def _jumps_of_frame(shows: ClockModel, model: ClockModel) -> tuple[OwnJump, ...]:
    """Return the jumps of the frame, which the model of another clock `shows`, as jumps of a clock that shares them."""
    jumps = []
    for jump in _jumps(shows):
        # Halfway between what the other model says before and after is where the frame's clock itself jumps.
        within_ns = jump.at_error_ns or 0
        around_ns = (shows.moment_to_run(jump.at_ns - within_ns - 1), shows.moment_to_run(jump.at_ns + within_ns))
        own_ns = [run_ns + model.offset_ns for run_ns in around_ns]
        first_ns, last_ns = sorted(ns + round((ns - model.at_ns) * (model.drift_ppm or 0.0) * 1e-6) for ns in own_ns)
        error_ns = None if jump.at_error_ns is None else (last_ns - first_ns + 1) // 2
        jumps.append(OwnJump((first_ns + last_ns) // 2, -jump.by_ns, error_ns))
    return tuple(jumps)


def _jump_sizes_ns(model: ClockModel) -> list[int]:
    """Return by how much a clock jumps ahead at each of its jumps."""
    offsets = [(model.offset_ns, model.at_ns), *((jump.offset_ns, jump.at_ns) for jump in model.jumps)]
    drift = (model.drift_ppm or 0.0) * 1e-6
    by_ns = []
    for (was_ns, was_at_ns), (is_ns, at_ns) in pairwise(offsets):
        elapsed_ns = (at_ns - is_ns) - (was_at_ns - was_ns)
        by_ns.append(is_ns - was_ns - round(drift * elapsed_ns))
    return by_ns


def _jumps_notably(model: ClockModel) -> bool:
    """Return whether a clock jumps itself. The reference's jumps leave small traces in the models of other ranks."""
    return bool(model.jumps) and max(map(abs, _jump_sizes_ns(model))) >= _NOTABLE_NS
